#include "lockstep/view/live/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace lockstep::view {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

/// Of rank 3, which has joined.
LiveHost host_of_one() {
  LiveHost host;
  host.record.ranks.push_back({.rank = 3, .pid = 42, .joined = true});
  host.ranks.push_back({.rank = 3});
  return host;
}

trace::TotalsRow row(Operation operation, int size_bin, const trace::CallTotals& totals,
                     bool has_counts = false) {
  return {.of = {.operation = operation, .has_counts = has_counts, .size_bin = size_bin}, .totals = totals};
}

TEST(Metrics, AddUpTheSizesOfAnOperationAndNameRankAndOperation) {
  LiveHost host = host_of_one();
  host.record.ranks[0].totals = {
      row(Operation::all_reduce, 3, {.calls = 2, .bytes = 16, .ns = 1'500'000'000}),
      row(Operation::all_reduce, 9, {.calls = 1, .bytes = 512, .waited_ns = 250'000'000}),
      row(Operation::all_gather, 9, {.calls = 7, .blocked_ns = 500'000'000}, true)};
  host.record.ranks[0].totals_left_out = {.calls = 4};
  const std::string text = text_of(metrics_of({.ranks = 8}, {host}));
  EXPECT_THAT(text, HasSubstr("# HELP lockstep_ranks Ranks of the job, on all hosts.\n"
                              "# TYPE lockstep_ranks gauge\nlockstep_ranks 8\n"));
  EXPECT_THAT(text, HasSubstr("# TYPE lockstep_calls_total counter\n"
                              "lockstep_calls_total{rank=\"3\",operation=\"all_gather_v\"} 7\n"
                              "lockstep_calls_total{rank=\"3\",operation=\"all_reduce\"} 3\n"
                              "lockstep_calls_total{rank=\"3\",operation=\"other\"} 4\n"));
  EXPECT_THAT(text, HasSubstr("lockstep_call_bytes_total{rank=\"3\",operation=\"all_reduce\"} 528\n"));
  EXPECT_THAT(text, HasSubstr("lockstep_call_seconds_total{rank=\"3\",operation=\"all_reduce\"} 1.5\n"));
  EXPECT_THAT(text, HasSubstr("lockstep_wait_seconds_total{rank=\"3\",operation=\"all_reduce\"} 0.25\n"));
  EXPECT_THAT(text, HasSubstr("lockstep_blocked_seconds_total{rank=\"3\",operation=\"all_gather_v\"} 0.5\n"));
}

TEST(Metrics, OfARankThatHasNotJoinedThereAreNone) {
  LiveHost host = host_of_one();
  host.record.ranks[0].joined = false;
  EXPECT_THAT(text_of(metrics_of({}, {host})), Not(HasSubstr("rank=")));
}

TEST(Metrics, NamesOfCountersMayHoldAnyBytes) {
  LiveHost host = host_of_one();
  host.ranks[0].counters = {{"a \"b\" \\ \n \xff", 2.5}, {"not a number", std::nan("")}, {"much", HUGE_VAL}};
  const std::string text = text_of(metrics_of({}, {host}));
  EXPECT_THAT(text,
              HasSubstr("lockstep_counter{name=\"a \\\"b\\\" \\\\ \\n \xef\xbf\xbd\",rank=\"3\"} 2.5\n"));
  EXPECT_THAT(text, HasSubstr("{name=\"not a number\",rank=\"3\"} NaN\n"));
  EXPECT_THAT(text, HasSubstr("{name=\"much\",rank=\"3\"} +Inf\n"));
}

TEST(Metrics, OfAnEarlierAttemptCountersGoOnAndTheRestDoesNot) {
  LiveHost before = host_of_one();
  before.record.ranks[0].totals = {row(Operation::barrier, 0, {.calls = 5})};
  before.record.ranks[0].steps = {.steps = 10};
  before.ranks[0].resident_bytes = 7;
  before.ranks[0].user_ns = 2'000'000'000;
  LiveHost now = host_of_one();
  now.record.ranks[0].steps = {.steps = 1};
  now.ranks[0].resident_bytes = 8;
  Metrics metrics = metrics_of({.ranks = 1, .restarts = 1}, {now});
  add_counters(metrics, metrics_of({.ranks = 1}, {before}));
  const std::string text = text_of(metrics);
  EXPECT_THAT(text, HasSubstr("lockstep_calls_total{rank=\"3\",operation=\"barrier\"} 5\n"));
  EXPECT_THAT(text, HasSubstr("lockstep_training_steps_total{rank=\"3\"} 11\n"));
  EXPECT_THAT(text, HasSubstr("lockstep_cpu_seconds_total{rank=\"3\",mode=\"user\"} 2\n"));
  EXPECT_THAT(text, HasSubstr("lockstep_resident_bytes{rank=\"3\"} 8\n"));
  EXPECT_THAT(text, HasSubstr("lockstep_restarts 1\n"));
  EXPECT_THAT(text, HasSubstr("lockstep_ranks 1\n"));
}

}  // namespace
}  // namespace lockstep::view
