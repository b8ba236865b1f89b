#include "lockstep/transport/ring/ring_transport.h"

#include <gtest/gtest.h>

#include <array>
#include <set>

namespace lockstep {
namespace {

using namespace std::chrono_literals;

using Kind = PeerNews::Kind;

// Group ranks 0, 1 and 3 are on this host as numbers 2, 0 and 1 of the region; rank 2 is elsewhere. In the
// control page, which other groups share, they are 1, 4 and 0; in the world 5, 3, 9 and 8.
class OneHost : public testing::Test {
 protected:
  OneHost() {
    for (const int rank : {0, 1, 3}) {
      ranks_[static_cast<std::size_t>(rank)] = std::make_unique<RingTransport>(
          RingTransportOptions{.members = {rank,
                                           {{.world = 5, .local = 2, .page = 1},
                                            {.world = 3, .local = 0, .page = 4},
                                            {.world = 9},
                                            {.world = 8, .local = 1, .page = 0}}},
                               .region = region_,
                               .page = page_,
                               .is_alive = [this](int local) { return dead_.count(local) == 0; }});
    }
  }
  RingTransport& operator[](int rank) { return *ranks_[static_cast<std::size_t>(rank)]; }
  RingTransport& at(int rank) { return (*this)[rank]; }

  std::shared_ptr<HostRegion> region_ = HostRegion::in_process(3, 4096);
  std::shared_ptr<ControlPage> page_ = std::make_shared<ControlPage>(ControlPage::in_process(5));
  std::set<int> dead_;  // by number in the region
  std::array<std::unique_ptr<RingTransport>, 4> ranks_;
};

void expect_carries(Channel& from, Channel& to, std::byte value) {
  std::array<std::byte, 2> received{};
  EXPECT_EQ(from.try_write(std::span(&value, 1)), 1U);
  EXPECT_EQ(to.try_read(received), 1U);
  EXPECT_EQ(received[0], value);
}

TEST_F(OneHost, EachPairAndPurposeHasItsOwnChannel) {
  int value = 0;
  for (const Purpose purpose : {Purpose::collective, Purpose::point_to_point}) {
    for (const auto& [from, to] : {std::pair(0, 1), {1, 0}, {0, 3}, {3, 0}, {1, 3}, {3, 1}}) {
      const auto byte = static_cast<std::byte>(++value);
      EXPECT_EQ(at(from).channel(to, purpose).try_write(std::span(&byte, 1)), 1U);
    }
  }
  value = 0;
  for (const Purpose purpose : {Purpose::collective, Purpose::point_to_point}) {
    for (const auto& [from, to] : {std::pair(0, 1), {1, 0}, {0, 3}, {3, 0}, {1, 3}, {3, 1}}) {
      std::array<std::byte, 2> received{};
      EXPECT_EQ(at(to).channel(from, purpose).try_read(received), 1U);
      EXPECT_EQ(received[0], static_cast<std::byte>(++value));
    }
  }
}

TEST_F(OneHost, ARankThatLeavesIsNews) {
  EXPECT_TRUE(at(0).look().empty());
  at(1).say_goodbye();
  for (const int rank : {0, 3}) {
    const auto news = at(rank).look();
    ASSERT_EQ(news.size(), 1U);
    EXPECT_EQ(news[0].kind, Kind::left);
    EXPECT_EQ(news[0].rank, 1);
  }
  EXPECT_TRUE(at(1).look().empty()) << "none of its own";
}

TEST_F(OneHost, ARankThatLeftLeavesItsBytes) {
  const std::byte value{42};
  EXPECT_EQ(at(1).channel(0, Purpose::collective).try_write(std::span(&value, 1)), 1U);
  at(1).say_goodbye();
  ranks_[1].reset();
  std::byte received{};
  EXPECT_EQ(at(0).channel(1, Purpose::collective).try_read(std::span(&received, 1)), 1U);
  EXPECT_EQ(received, value);
}

TEST_F(OneHost, ARankThatDiesIsNewsUnlessItLeftBefore) {
  dead_.insert(1);  // group rank 3
  auto news = at(0).look();
  ASSERT_EQ(news.size(), 1U);
  EXPECT_EQ(news[0].kind, Kind::died);
  EXPECT_EQ(news[0].rank, 3);
  at(3).say_goodbye();
  news = at(0).look();
  ASSERT_EQ(news.size(), 1U);
  EXPECT_EQ(news[0].kind, Kind::left);
}

TEST_F(OneHost, AFailureIsToldToAllAndItsFirstCauseStays) {
  const FirstCause::Cause cause{ErrorCode::mismatch, 8, 3, "ranks called different operations"};
  at(1).tell_failure(cause);
  at(3).tell_failure({ErrorCode::timeout, 5, 8, "a consequence"});
  dead_.insert(2);
  for (const int rank : {0, 3}) {
    const auto news = at(rank).look();
    ASSERT_EQ(news.size(), 1U) << "the cause, none of its consequences";
    EXPECT_EQ(news[0].kind, Kind::failed);
    EXPECT_EQ(news[0].cause.code, cause.code);
    EXPECT_EQ(news[0].cause.culprit, cause.culprit);
    EXPECT_EQ(news[0].cause.reporter, cause.reporter);
    EXPECT_EQ(news[0].cause.text, cause.text);
  }
  EXPECT_EQ(page_->first_cause().get()->text, cause.text) << "the launcher reads it";
}

TEST_F(OneHost, WaitsAreToldInRanksOfTheWorld) {
  EXPECT_EQ(at(0).awaited_by(3, 1s), std::nullopt);
  at(1).tell_waiting(8);
  EXPECT_EQ(page_->status(4).awaits.load(), 8 + 1) << "other groups share the page";
  EXPECT_EQ(at(0).awaited_by(3, 1s), 8);
  at(1).tell_waiting(9);
  EXPECT_EQ(at(0).awaited_by(3, 1s), 9);
  EXPECT_EQ(at(0).awaited_by(3, 0s), std::nullopt) << "too long ago";
  at(1).tell_waiting(77);
  EXPECT_EQ(at(0).awaited_by(3, 1s), 77) << "also for a rank of another group";
  at(1).tell_waiting(-1);
  EXPECT_EQ(at(0).awaited_by(3, 1s), std::nullopt);
  EXPECT_EQ(at(0).awaited_by(9, 1s), std::nullopt) << "on another host";
  EXPECT_EQ(at(0).awaited_by(77, 1s), std::nullopt) << "of another group";
}

TEST_F(OneHost, WhoSleepsOnTheDoorbellIsWoken) {
  EXPECT_TRUE(at(0).wait_descriptors().empty());
  const auto begin = std::chrono::steady_clock::now();
  const auto wakes = [&](auto action) {
    const auto ticket = page_->doorbell().prepare();
    action();
    page_->doorbell().sleep(ticket, std::chrono::seconds(20));
  };
  wakes([&] {
    expect_carries(at(1).channel(0, Purpose::collective), at(0).channel(1, Purpose::collective), {});
  });
  wakes([&] { at(1).say_goodbye(); });
  wakes([&] { at(1).tell_failure({}); });
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
}

}  // namespace
}  // namespace lockstep
