#include "lockstep/launch/standstill.h"

#include <gtest/gtest.h>

namespace lockstep::launch {
namespace {

using std::chrono::seconds;

class StandstillOfTwo : public ::testing::Test {
 protected:
  StandstillOfTwo() {
    hosts[0].record.ranks.resize(2);
    hosts[0].record.at_ns = ns(1000);
  }
  static std::uint64_t ns(std::uint64_t seconds) { return seconds * 1'000'000'000; }
  bool look_at(int second) {
    hosts[0].record.at_ns = ns(1000 + static_cast<std::uint64_t>(second));
    return standstill.look(hosts, begin + seconds(second));
  }
  void wait_since(int second) {
    hosts[0].record.ranks[0].open_calls = {
        {.begin_ns = ns(1000 + static_cast<std::uint64_t>(second)), .looked_ns = ns(5000)}};
  }
  trace::FlightRank& other() { return hosts[0].record.ranks[1]; }

  std::vector<view::LiveHost> hosts{1};
  Standstill standstill{seconds(60)};
  Deadline::Clock::time_point begin;
};

TEST_F(StandstillOfTwo, IsSaidOnceWhenARankHasWaitedSoLong) {
  wait_since(0);
  EXPECT_FALSE(look_at(0));
  EXPECT_FALSE(look_at(59));
  EXPECT_TRUE(look_at(61));
  EXPECT_FALSE(look_at(62));
  EXPECT_FALSE(look_at(600));
}

TEST_F(StandstillOfTwo, IsSaidAgainOnlyAfterACallOrAStepWasOver) {
  wait_since(0);
  EXPECT_FALSE(look_at(0));
  EXPECT_TRUE(look_at(61));
  other().totals = {{.totals = {.calls = 1}}};
  wait_since(70);
  EXPECT_FALSE(look_at(70));
  EXPECT_FALSE(look_at(129));
  EXPECT_TRUE(look_at(131));
  other().steps.steps = 1;
  EXPECT_FALSE(look_at(132));
  EXPECT_TRUE(look_at(192));
}

TEST_F(StandstillOfTwo, IsNoneWhereAllCompute) {
  EXPECT_FALSE(look_at(0));
  EXPECT_FALSE(look_at(1000));
}

TEST_F(StandstillOfTwo, IsNoneWhereAReceiveWasPostedAheadAndNobodyWaitsForIt) {
  wait_since(0);
  hosts[0].record.ranks[0].open_calls[0].looked_ns = 0;
  EXPECT_FALSE(look_at(0));
  EXPECT_FALSE(look_at(1000));
}

TEST_F(StandstillOfTwo, IsNoneWhileOthersCompleteCalls) {
  wait_since(0);
  for (int second = 0; second < 600; second += 30) {
    other().totals = {{.totals = {.calls = static_cast<std::uint64_t>(second) + 1}}};
    EXPECT_FALSE(look_at(second));
  }
}

TEST_F(StandstillOfTwo, TimeInWhichTheUserHasStoppedTheJobIsNone) {
  wait_since(0);
  EXPECT_FALSE(look_at(0));
  standstill.forget();
  EXPECT_FALSE(look_at(100));
  EXPECT_TRUE(look_at(161));
}

}  // namespace
}  // namespace lockstep::launch
