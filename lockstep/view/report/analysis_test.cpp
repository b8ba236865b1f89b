#include "lockstep/view/report/analysis.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "lockstep/view/report/made_up_run_test.h"

namespace lockstep::view {
namespace {

using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::SizeIs;

constexpr double ns_per_ms = 1e6;

TEST(StepFacts, AddUpToTheAchievedStep) {
  MadeUpTraining training{.work_ms = 0.5, .jitter_ms = 0};
  training.ranks[3].data_ms = 5;
  const Analysis analysis = analyse(training.run());
  ASSERT_TRUE(analysis.steps);
  const StepFacts& steps = *analysis.steps;
  EXPECT_EQ(steps.steps + steps.warm_up, 59U);  // of the last one it is not known when it was over
  EXPECT_NEAR(steps.mean_ns, 26.5 * ns_per_ms, 0.01 * ns_per_ms);
  EXPECT_NEAR(std::accumulate(steps.mean.begin(), steps.mean.end(), 0.0), steps.mean_ns, 1000);
  const auto about = [](double ms) { return DoubleNear(ms * ns_per_ms, 0.01 * ns_per_ms); };
  // compute, data, others, transfer, optimizer, checkpoint, rest
  EXPECT_THAT(steps.by_rank[0],
              ElementsAre(about(20), about(0), about(5), about(0.5), about(1), about(0), about(0)));
  EXPECT_THAT(steps.by_rank[3],
              ElementsAre(about(20), about(5), about(0), about(0.5), about(1), about(0), about(0)));
}

TEST(StepFacts, LeaveOutStepsWithSomethingElseInThem) {
  RunData run = MadeUpTraining{.jitter_ms = 0}.run();
  for (RankTimeline& rank : run.timeline.ranks) {
    for (auto& step : rank.steps) {
      if (step.step <= 30) continue;
      for (std::uint64_t* at : {&step.begin_ns, &step.last_gradient_ns, &step.end_ns})
        *at += 500 * made_up_ms;
    }
  }
  const Analysis analysis = analyse(run);
  EXPECT_EQ(analysis.steps->long_steps, 1U);
  EXPECT_NEAR(analysis.steps->long_extra_ns, 500 * ns_per_ms, ns_per_ms);
  EXPECT_NEAR(analysis.steps->mean_ns, 21.2 * ns_per_ms, 0.05 * ns_per_ms);
}

TEST(StepFacts, SayWhatOfACallIsCovered) {
  RunData run = MadeUpTraining{.ranks = std::vector<MadeUpRank>(2), .work_ms = 4, .jitter_ms = 0}.run();
  for (RankTimeline& rank : run.timeline.ranks) {
    for (const trace::TrainingStepEvent& step : rank.steps) {
      trace::CollectiveEvent call{};
      call.sequence = step.step;
      call.begin_ns = call.arrived_ns = step.last_gradient_ns - 6 * made_up_ms;
      call.end_ns = step.last_gradient_ns + 2 * made_up_ms;
      call.operation = Operation::all_reduce;
      call.dtype = Dtype::f32;
      call.elements = 1000;
      rank.calls.push_back(call);
    }
  }
  const Analysis analysis = analyse(run);
  ASSERT_THAT(analysis.steps->calls, SizeIs(1));
  EXPECT_NEAR(analysis.steps->calls[0].bytes, 4000, 1e-6);
  EXPECT_NEAR(analysis.steps->calls[0].exposed_ns, 2 * ns_per_ms, 1);
  EXPECT_NEAR(analysis.steps->covered_ns / analysis.steps->under_way_ns, 0.75, 1e-6);
}

TEST(Meetings, CountWhoCameLastAndByHowMuch) {
  const Analysis analysis = analyse(made_up_calls(3, 50, 1, 2));
  ASSERT_THAT(analysis.meetings, SizeIs(1));
  const Meetings& meetings = analysis.meetings[0];
  EXPECT_EQ(meetings.kind, "all_reduce");
  EXPECT_EQ(meetings.count, 50U);
  EXPECT_NEAR(meetings.wait_ns, 2 * ns_per_ms * 2 / 3, 1);
  ASSERT_THAT(meetings.ranks, SizeIs(1));
  EXPECT_EQ(meetings.ranks[0].rank, 1);
  EXPECT_EQ(meetings.ranks[0].last, 50U);
  EXPECT_NEAR(meetings.ranks[0].median_late_ns, 2 * ns_per_ms, 1);
  EXPECT_NEAR(meetings.ranks[0].gain_ns, 2 * ns_per_ms, 1);
}

TEST(Sizes, HaveBandwidthsThatCompare) {
  const MachineLimits limits{.ranks = 4, .hosts = 1, .memory_bytes_per_s = {4e9, 8e9}};
  const Analysis analysis = analyse(made_up_calls(4, 10, 1, 2), {.limits = limits});
  ASSERT_THAT(analysis.sizes, SizeIs(1));
  // 1,000 bytes, 2 * 3/4 of which a rank moves in 1 ms.
  EXPECT_NEAR(analysis.sizes[0].bus_bytes_per_second, 1.5e6, 1);
  EXPECT_EQ(analysis.sizes[0].calls, 40U);
  EXPECT_EQ(analysis.sizes[0].limit_bytes_per_second, limits.bus_bandwidth(Operation::all_reduce, 4));
}

TEST(RankFacts, SayWhatWaitingBurntAtLeastWhereThereIsOneThread) {
  RunData run = made_up_calls(2, 100, 1, 4);  // rank 0 waits 400 ms of a second
  EXPECT_NEAR(analyse(run).ranks[0].burnt_ns.value(), 400 * ns_per_ms, ns_per_ms);
  run.record->ranks[0].costs.process.user_ns = 700 * made_up_ms;
  EXPECT_NEAR(analyse(run).ranks[0].burnt_ns.value(), 100 * ns_per_ms, ns_per_ms);
  run.record->ranks[0].costs.process.user_ns = 2000 * made_up_ms;
  EXPECT_FALSE(analyse(run).ranks[0].burnt_ns);
}

TEST(MedianOf, IsTheMiddle) {
  EXPECT_EQ(median_of({}), 0);
  EXPECT_EQ(median_of({3, 1, 2}), 2);
  EXPECT_EQ(median_of({4, 1, 2, 3}), 2.5);
}

}  // namespace
}  // namespace lockstep::view
