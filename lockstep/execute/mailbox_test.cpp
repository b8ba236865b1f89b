// What a mailbox makes of a rank that sends what nobody waits for, or what is no message.
#include "lockstep/execute/mailbox.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "lockstep/base/waits_test.h"
#include "lockstep/execute/channel_test.h"

namespace lockstep {
namespace {

using test::ChannelByHand;
using test::error_of;
using testing::HasSubstr;

constexpr int awaited_tag = 0;
constexpr int other_tag = 1;
constexpr std::size_t most_aside_bytes = 1000;

class AMailbox : public testing::Test {
 protected:
  AMailbox() { mailbox_.post(receive_); }

  static MessageHeader header(int tag, std::uint64_t bytes) {
    return {.bytes = bytes,
            .signature = {.detail = static_cast<std::uint32_t>(tag), .operation = Operation::send}};
  }
  ErrorCode code_of_advance() {
    return error_of([&] { (void)mailbox_.advance(); }).code();
  }

  ChannelByHand channel_;
  Mailbox mailbox_{0, 2, [this](int) -> Channel& { return channel_; }, most_aside_bytes};
  Incoming receive_{.source = 1, .tag = awaited_tag};
};

TEST_F(AMailbox, PutsAsideOnlySoManyMessagesWithoutPayload) {
  for (int i = 0; i < 100'000; ++i) channel_.arrive(header(other_tag, 0));
  const Error error = error_of([&] { (void)mailbox_.advance(); });
  EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
  EXPECT_THAT(error.what(), HasSubstr("raise LOCKSTEP_MAILBOX_BYTES (1000)"));
  EXPECT_LE(mailbox_.unclaimed().size(), most_aside_bytes / sizeof(MessageHeader));
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // they end the process instead
TEST_F(AMailbox, LosesNothingWhereThereIsNoMemoryToPutItAside) {
  constexpr std::uint64_t too_much = std::uint64_t{1} << 62;
  ChannelByHand channel;
  Mailbox mailbox(
      0, 2, [&](int) -> Channel& { return channel; }, SIZE_MAX);
  mailbox.post(receive_);
  channel.arrive(header(other_tag, too_much));
  const Error error = error_of([&] { (void)mailbox.advance(); });
  EXPECT_EQ(error.code(), ErrorCode::system);
  EXPECT_THAT(error.what(), HasSubstr("there is no memory to put it aside; post its receive first"));
  EXPECT_TRUE(mailbox.unclaimed().empty());
}
#endif

TEST_F(AMailbox, HasRoomAgainForWhatWasReceived) {
  for (int i = 0; i < 1000; ++i) {
    channel_.arrive(header(other_tag, most_aside_bytes - sizeof(MessageHeader)),
                    most_aside_bytes - sizeof(MessageHeader));
    EXPECT_TRUE(mailbox_.advance());
    std::vector<std::byte> bytes(most_aside_bytes - sizeof(MessageHeader));
    Incoming receive{.source = 1, .tag = other_tag, .bytes = bytes};
    mailbox_.post(receive);
    ASSERT_TRUE(receive.is_over);
  }
}

TEST_F(AMailbox, BelievesNoLengthBeyondItsBound) {
  for (const std::uint64_t bytes : {most_aside_bytes, SIZE_MAX, SIZE_MAX - sizeof(MessageHeader) + 1}) {
    ChannelByHand channel;
    Mailbox mailbox(
        0, 2, [&](int) -> Channel& { return channel; }, most_aside_bytes);
    mailbox.post(receive_);
    channel.arrive(header(other_tag, bytes));
    EXPECT_EQ(error_of([&] { (void)mailbox.advance(); }).code(), ErrorCode::invalid_argument);
    EXPECT_TRUE(mailbox.unclaimed().empty());
  }
}

TEST_F(AMailbox, TakesNoCallForAMessage) {
  MessageHeader call = header(awaited_tag, 0);
  call.kind = MessageHeader::Kind::call;
  channel_.arrive(call);
  EXPECT_EQ(code_of_advance(), ErrorCode::corrupt_data);
  EXPECT_FALSE(receive_.is_over);
}

class TheQuickWay : public testing::Test {
 protected:
  static constexpr int looks = 3;

  static std::vector<std::byte> message(int tag, std::size_t bytes) {
    const MessageHeader header{
        .bytes = bytes,
        .signature = {.detail = static_cast<std::uint32_t>(tag), .operation = Operation::send}};
    const auto head = std::as_bytes(std::span(&header, 1));
    std::vector<std::byte> all(head.begin(), head.end());
    for (std::size_t i = 0; i < bytes; ++i) all.push_back(static_cast<std::byte>(i + 1));
    return all;
  }
  void arrive(std::span<const std::byte> bytes) { channel_.arrive(bytes); }
  bool receive_now(Incoming& receive) {
    std::uint64_t last_look_ns = 0;
    return mailbox_.receive_now(receive, looks, last_look_ns);
  }
  void expect_received(const Incoming& receive) {
    EXPECT_TRUE(receive.is_over);
    EXPECT_EQ(receive.from.source, 1);
    for (std::size_t i = 0; i < receive.bytes.size(); ++i)
      ASSERT_EQ(receive.bytes[i], static_cast<std::byte>(i + 1));
  }

  ChannelByHand channel_;
  Mailbox mailbox_{0, 2, [this](int) -> Channel& { return channel_; }, most_aside_bytes};
  std::vector<std::byte> bytes_ = std::vector<std::byte>(100);
  Incoming receive_{.source = 1, .tag = awaited_tag, .bytes = bytes_};
};

TEST_F(TheQuickWay, GetsWhatIsThere) {
  arrive(message(awaited_tag, 100));
  arrive(message(awaited_tag, 100));
  ASSERT_TRUE(receive_now(receive_));
  expect_received(receive_);
  Incoming next{.source = 1, .tag = any_tag, .bytes = bytes_};
  ASSERT_TRUE(receive_now(next));
  EXPECT_EQ(next.from.tag, awaited_tag);
}

TEST_F(TheQuickWay, WhatComesInPiecesGoesOnWhenItIsPosted) {
  const auto all = message(awaited_tag, 100);
  for (std::size_t first = 0; first < all.size(); ++first) {
    std::ranges::fill(bytes_, std::byte{});
    Incoming receive{.source = 1, .tag = awaited_tag, .bytes = bytes_};
    arrive(std::span(all).first(first));
    ASSERT_FALSE(receive_now(receive));
    mailbox_.post(receive);
    arrive(std::span(all).subspan(first));
    ASSERT_TRUE(mailbox_.advance()) << first;
    expect_received(receive);
  }
}

TEST_F(TheQuickWay, AnotherTagIsPutAside) {
  arrive(message(other_tag, 10));
  arrive(message(awaited_tag, 100));
  ASSERT_FALSE(receive_now(receive_));
  mailbox_.post(receive_);
  ASSERT_TRUE(mailbox_.advance());
  expect_received(receive_);
  Incoming other{.source = 1, .tag = other_tag, .bytes = std::span(bytes_).first(10)};
  EXPECT_FALSE(receive_now(other)) << "what lies aside comes first";
  mailbox_.post(other);
  expect_received(other);
}

TEST_F(TheQuickWay, AnotherSizeIsAMisfit) {
  arrive(message(awaited_tag, 99));
  ASSERT_FALSE(receive_now(receive_));
  mailbox_.post(receive_);
  (void)mailbox_.advance();
  ASSERT_TRUE(mailbox_.misfit());
  EXPECT_EQ(mailbox_.misfit()->arrived.bytes, 99U);
}

TEST_F(TheQuickWay, WaitsForEarlierReceives) {
  Incoming earlier{.source = any_source, .tag = any_tag, .bytes = bytes_};
  mailbox_.post(earlier);
  arrive(message(awaited_tag, 100));
  EXPECT_FALSE(receive_now(receive_));
  (void)mailbox_.advance();
  expect_received(earlier);
}

TEST_F(TheQuickWay, WhatIsNoMessageIsFound) {
  arrive(std::vector<std::byte>(sizeof(MessageHeader)));
  EXPECT_EQ(error_of([&] { receive_now(receive_); }).code(), ErrorCode::corrupt_data);
}

TEST_F(TheQuickWay, SendsWhatFitsAndTheRestWhenItIsPosted) {
  const auto all = message(other_tag, 100);
  for (std::size_t room = 0; room <= all.size(); ++room) {
    ChannelByHand channel;
    Mailbox mailbox(
        0, 2, [&](int) -> Channel& { return channel; }, most_aside_bytes);
    channel.set_room(room);
    Outgoing outgoing{.peer = 1,
                      .signature = {.detail = other_tag, .operation = Operation::send},
                      .bytes = std::span(all).subspan(sizeof(MessageHeader))};
    const bool is_sent = mailbox.send_now(outgoing);
    ASSERT_EQ(is_sent, room == all.size());
    if (!is_sent) mailbox.post(outgoing);
    channel.set_room(SIZE_MAX);
    (void)mailbox.advance();
    ASSERT_EQ(channel.written(), all) << room;
  }
}

TEST_F(TheQuickWay, DoesNotOvertake) {
  channel_.set_room(0);
  Outgoing earlier{.peer = 1};
  mailbox_.post(earlier);
  channel_.set_room(SIZE_MAX);
  EXPECT_FALSE(mailbox_.send_now({.peer = 1}));
  EXPECT_FALSE(mailbox_.send_now({.peer = 0})) << "to itself";
}

class LentMessages : public testing::Test {
 protected:
  static constexpr std::size_t least_bytes = 50;

  LentMessages() : shared_(std::size_t{3} << 20) {
    for (std::size_t i = 0; i < shared_.size(); ++i) shared_[i] = static_cast<std::byte>(i % 251);
  }

  /// Both ranks' part is the same memory here.
  Lending lending() {
    return {.least_bytes = least_bytes,
            .place_of = [this](std::span<const std::byte> bytes) -> std::optional<std::uint64_t> {
              if (bytes.data() < shared_.data() || bytes.data() >= shared_.data() + shared_.size())
                return std::nullopt;
              return bytes.data() - shared_.data();
            },
            .memory_of = [this](int, std::uint64_t place,
                                std::uint64_t bytes) -> std::optional<std::span<const std::byte>> {
              if (place > shared_.size() || bytes > shared_.size() - place) return std::nullopt;
              return std::span<const std::byte>(shared_).subspan(place, bytes);
            }};
  }
  static MessageHeader header(int tag, std::uint64_t bytes) {
    return {.kind = MessageHeader::Kind::lent,
            .bytes = bytes,
            .signature = {.detail = static_cast<std::uint32_t>(tag), .operation = Operation::send}};
  }
  void arrive(int tag, std::uint64_t place, std::uint64_t bytes) {
    channel_.arrive(header(tag, bytes));
    channel_.arrive(std::as_bytes(std::span(&place, 1)));
  }
  Outgoing outgoing(std::size_t begin, std::size_t bytes) {
    return {.peer = 1,
            .signature = {.operation = Operation::send},
            .bytes = std::span(shared_).subspan(begin, bytes)};
  }

  std::vector<std::byte> shared_;
  ChannelByHand channel_;
  Mailbox mailbox_{0, 2, [this](int) -> Channel& { return channel_; }, most_aside_bytes, lending()};
};

TEST_F(LentMessages, SayWhereTheyLieAndAreOverWhenTheyWereTaken) {
  const std::size_t two_pieces = (std::size_t{1} << 20) + 1;
  Outgoing first = outgoing(7, two_pieces), second = outgoing(0, least_bytes + 1),
           small = outgoing(3, least_bytes - 1);
  for (Outgoing* message : {&first, &second, &small}) mailbox_.post(*message);
  for (std::size_t room = 1; !small.is_over; ++room) {  // in pieces of any size
    channel_.set_room(room);
    (void)mailbox_.advance();
  }
  std::vector<std::byte> expected;
  const auto expect = [&](const auto& bytes) { expected.insert(expected.end(), bytes.begin(), bytes.end()); };
  for (const auto& [place, bytes] : {std::pair{std::uint64_t{7}, two_pieces}, {0, least_bytes + 1}}) {
    const MessageHeader head = header(0, bytes);
    expect(std::as_bytes(std::span(&head, 1)));
    expect(std::as_bytes(std::span(&place, 1)));
  }
  MessageHeader head = header(0, least_bytes - 1);
  head.kind = MessageHeader::Kind::data;
  expect(std::as_bytes(std::span(&head, 1)));
  expect(small.bytes);
  EXPECT_EQ(channel_.written(), expected);
  EXPECT_FALSE(first.is_over);
  EXPECT_FALSE(mailbox_.advance());
  channel_.take();
  EXPECT_TRUE(mailbox_.advance()) << "it is seen to move";
  EXPECT_FALSE(first.is_over);
  channel_.take();
  EXPECT_TRUE(mailbox_.advance());
  EXPECT_TRUE(first.is_over);
  EXPECT_FALSE(second.is_over);
  channel_.take();
  (void)mailbox_.advance();
  EXPECT_TRUE(second.is_over);
}

TEST_F(LentMessages, AreCopiedFromWhereTheyLie) {
  constexpr std::size_t bytes = (std::size_t{2} << 20) + 5;  // more than is copied at once
  std::vector<std::byte> received(bytes);
  Incoming receive{.source = 1, .tag = awaited_tag, .bytes = received};
  mailbox_.post(receive);
  arrive(awaited_tag, 11, bytes);
  std::uint64_t moves = 0;
  while (mailbox_.advance()) EXPECT_EQ(channel_.noted(), ++moves) << "piece by piece";
  EXPECT_EQ(moves, 3U);
  ASSERT_TRUE(receive.is_over);
  EXPECT_TRUE(std::equal(received.begin(), received.end(), shared_.begin() + 11));
}

TEST_F(LentMessages, AreTakenToBePutAside) {
  Incoming awaited{.source = 1, .tag = awaited_tag};
  mailbox_.post(awaited);
  arrive(other_tag, 2, least_bytes);
  EXPECT_TRUE(mailbox_.advance());
  EXPECT_EQ(channel_.noted(), 1U);
  ASSERT_EQ(mailbox_.unclaimed().size(), 1U);
  std::vector<std::byte> received(least_bytes);
  Incoming receive{.source = any_source, .tag = other_tag, .bytes = received};
  std::fill_n(shared_.begin(), 100, std::byte{});  // they are the sender's again
  mailbox_.post(receive);
  ASSERT_TRUE(receive.is_over);
  EXPECT_EQ(received[5], std::byte{7});
}

TEST_F(LentMessages, WaitUntouchedWhileNobodyWantsThem) {
  Outgoing other{.peer = 1};
  mailbox_.post(other);  // so that it looks at the channel
  ASSERT_TRUE(mailbox_.advance());
  arrive(awaited_tag, 0, least_bytes);
  EXPECT_FALSE(mailbox_.advance());
  EXPECT_EQ(channel_.noted(), 0U);
}

TEST_F(LentMessages, AreReadWhereTheyLieAlsoAfterTheQuickWay) {
  std::vector<std::byte> received(least_bytes);
  Incoming receive{.source = 1, .tag = awaited_tag, .bytes = received};
  arrive(awaited_tag, 9, least_bytes);
  std::uint64_t last_look_ns = 0;
  ASSERT_FALSE(mailbox_.receive_now(receive, 3, last_look_ns));
  mailbox_.post(receive);
  EXPECT_TRUE(mailbox_.advance());
  ASSERT_TRUE(receive.is_over);
  EXPECT_TRUE(std::equal(received.begin(), received.end(), shared_.begin() + 9));
}

TEST_F(LentMessages, AreNotDeliveredWhereTheirSenderMayHaveThemBack) {
  Lending failing = lending();
  failing.require_sound = [] { throw Error(ErrorCode::peer_lost, "rank 1 gave up", 1); };
  Mailbox mailbox(
      0, 2, [this](int) -> Channel& { return channel_; }, most_aside_bytes, failing);
  std::vector<std::byte> received(least_bytes);
  Incoming receive{.source = 1, .tag = awaited_tag, .bytes = received};
  mailbox.post(receive);
  arrive(awaited_tag, 0, least_bytes);
  EXPECT_EQ(error_of([&] { (void)mailbox.advance(); }).code(), ErrorCode::peer_lost);
  EXPECT_FALSE(receive.is_over);
  EXPECT_EQ(channel_.noted(), 0U);
}

TEST_F(LentMessages, CanBeForgottenHalfWay) {
  Incoming awaited{.source = 1, .tag = awaited_tag};
  Mailbox large(
      0, 2, [this](int) -> Channel& { return channel_; }, shared_.size() * 2, lending());
  large.post(awaited);
  arrive(other_tag, 0, shared_.size());
  EXPECT_TRUE(large.advance());  // a piece of it is aside
  large.clear();
  EXPECT_FALSE(large.advance());
}

TEST_F(LentMessages, LieNowhereElse) {
  for (const std::uint64_t place : {std::uint64_t{3} << 20, SIZE_MAX}) {
    ChannelByHand channel;
    Mailbox mailbox(
        0, 2, [&](int) -> Channel& { return channel; }, most_aside_bytes, lending());
    std::vector<std::byte> received(least_bytes);
    Incoming receive{.source = 1, .tag = awaited_tag, .bytes = received};
    mailbox.post(receive);
    channel.arrive(header(awaited_tag, least_bytes));
    channel.arrive(std::as_bytes(std::span(&place, 1)));
    const Error error = error_of([&] { (void)mailbox.advance(); });
    EXPECT_EQ(error.code(), ErrorCode::corrupt_data);
    EXPECT_THAT(error.what(), HasSubstr("rank 1 of the group says that a message of 50 bytes lies at "));
  }
}

TEST_F(LentMessages, AreNoneBetweenHosts) {
  Mailbox without(
      0, 2, [this](int) -> Channel& { return channel_; }, most_aside_bytes);
  Incoming receive{.source = 1, .tag = awaited_tag};
  without.post(receive);
  arrive(awaited_tag, 0, least_bytes);
  EXPECT_EQ(error_of([&] { (void)without.advance(); }).code(), ErrorCode::corrupt_data);
}

}  // namespace
}  // namespace lockstep
