// What a mailbox makes of a rank that sends what nobody waits for, or what is no message.
#include "lockstep/execute/mailbox.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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

}  // namespace
}  // namespace lockstep
