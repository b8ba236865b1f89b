#include "lockstep/view/live/live_rates.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::view {
namespace {

using ::testing::DoubleEq;
using ::testing::Optional;

constexpr std::uint64_t second = 1'000'000'000;

/// Of one rank.
LiveHost at(std::uint64_t ns) {
  LiveHost host;
  host.record.at_ns = ns;
  host.record.ranks.push_back({.rank = 3, .pid = 42, .joined = true});
  host.ranks.push_back({.rank = 3});
  return host;
}

trace::TotalsRow row(Operation operation, const trace::CallTotals& totals) {
  return {.of = {.operation = operation}, .totals = totals};
}

RankRates rates_of(const LiveHost& before, const LiveHost& after) { return live_rates(before, after).at(0); }

TEST(LiveRates, AreOfTheTimeBetweenTheLooks) {
  LiveHost before = at(10 * second), after = at(12 * second);
  before.record.ranks[0].totals = {row(Operation::barrier, {.calls = 5})};
  after.record.ranks[0].totals = {
      row(Operation::all_reduce, {.calls = 6, .bytes = 4000, .blocked_ns = second / 2}),
      row(Operation::barrier, {.calls = 7, .blocked_ns = second / 2})};
  after.record.ranks[0].totals_left_out = {.calls = 2, .bytes = 1000};
  const RankRates rates = rates_of(before, after);
  EXPECT_EQ(rates.rank, 3);
  EXPECT_EQ(rates.pid, 42);
  EXPECT_DOUBLE_EQ(rates.calls_per_second, 5);
  EXPECT_DOUBLE_EQ(rates.bytes_per_second, 2500);
  EXPECT_DOUBLE_EQ(rates.blocked_share, 0.5);
  EXPECT_FALSE(rates.step_ns);
  EXPECT_FALSE(rates.exposed_share);
}

TEST(LiveRates, OfStepsAreMeansAndWhatIsExposedIsCommunication) {
  LiveHost before = at(10 * second), after = at(11 * second);
  before.record.ranks[0].steps = {.steps = 100, .ns = 100};
  after.record.ranks[0].steps = {.steps = 104,
                                 .ns = 100 + second / 2,
                                 .exposed_work_ns = second / 20,
                                 .exposed_wait_ns = second / 5,
                                 .gradient_bytes = 1000};
  const RankRates rates = rates_of(before, after);
  EXPECT_EQ(rates.steps, 104U);
  EXPECT_THAT(rates.step_ns, Optional(second / 4));
  EXPECT_THAT(rates.exposed_share, Optional(DoubleEq(0.5)));
  EXPECT_DOUBLE_EQ(rates.blocked_share, 0.25);
  EXPECT_DOUBLE_EQ(rates.bytes_per_second, 1000);
}

TEST(LiveRates, ACallThatIsNotOverIsCountedWhileItLastsAndNotOnceMoreAtItsEnd) {
  LiveHost before = at(10 * second), middle = at(11 * second), after = at(12 * second);
  middle.record.ranks[0].open_calls = {
      {.begin_ns = 10 * second + second / 2, .looked_ns = 11 * second - second / 100}};
  after.record.ranks[0].totals = {row(Operation::barrier, {.calls = 1, .blocked_ns = second})};
  EXPECT_DOUBLE_EQ(rates_of(before, middle).blocked_share, 0.5);
  EXPECT_DOUBLE_EQ(rates_of(middle, after).blocked_share, 0.5);
}

TEST(LiveRates, ACallThatNobodyWaitsForBlocksNobody) {
  LiveHost before = at(10 * second), after = at(11 * second);
  after.record.ranks[0].open_calls = {{.begin_ns = 10 * second}};
  EXPECT_DOUBLE_EQ(rates_of(before, after).blocked_share, 0);
}

TEST(LiveRates, HaveTheMedianOfHowLateARankCame) {
  const LiveHost before = at(0);
  LiveHost after = at(second);
  after.ranks[0].late = {9, 1, 5};
  after.ranks[0].counters = {{"images/s", 12.5}, {"loss", 3}};
  const RankRates rates = rates_of(before, after);
  EXPECT_EQ(rates.last_arrivals, 3U);
  EXPECT_EQ(rates.late_ns, 5U);
  EXPECT_THAT(rates.images_per_second, Optional(12.5));
  EXPECT_FALSE(rates_of(before, at(second)).images_per_second);
}

TEST(LiveRates, OfNoTimeAndOfNumbersThatWentBackAreZero) {
  LiveHost before = at(second), after = at(second);
  before.record.ranks[0].totals = {row(Operation::barrier, {.calls = 9, .blocked_ns = 9})};
  before.record.ranks[0].steps = {.steps = 9};
  const RankRates rates = rates_of(before, after);
  EXPECT_EQ(rates.calls_per_second, 0);
  EXPECT_EQ(rates.blocked_share, 0);
  EXPECT_FALSE(rates.step_ns);
}

}  // namespace
}  // namespace lockstep::view
