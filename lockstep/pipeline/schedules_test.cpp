// Every schedule is proven and simulated for each shape; broken ones are refused.
#include "lockstep/pipeline/schedules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <string_view>

#include "lockstep/base/error.h"
#include "lockstep/pipeline/cut.h"
#include "lockstep/pipeline/draw.h"
#include "lockstep/pipeline/simulate.h"
#include "lockstep/pipeline/verify.h"

namespace lockstep::pipeline {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string name_of(const Schedule& schedule, const Shape& shape) {
  return std::string(schedule.name) + ", " + std::to_string(shape.ranks) + " ranks, " +
         std::to_string(shape.stages) + " stages, " + std::to_string(shape.micro_batches) + " micro-batches";
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int most_ranks = 5, most_micro_batches = 17;  // every instruction takes ten times as long
#else
constexpr int most_ranks = 16, most_micro_batches = 64;
#endif

/// All shapes up to so many ranks and micro-batches, and 4 stages a rank.
template <class Check>
void for_each_shape(const Check& check) {
  for (const Schedule& schedule : all_schedules()) {
    for (int ranks = 1; ranks <= most_ranks; ++ranks) {
      for (int each = 1; each <= (schedule.takes_several_stages ? 4 : 1); ++each) {
        for (int micro_batches = 1; micro_batches <= most_micro_batches; ++micro_batches)
          check(schedule, Shape{.ranks = ranks, .stages = each * ranks, .micro_batches = micro_batches});
      }
    }
  }
}

TEST(PipelineSchedules, AreProven) {
  for_each_shape([](const Schedule& schedule, const Shape& shape) {
    const Verdict verdict = verify(schedule, plan_of(schedule, shape));
    ASSERT_TRUE(verdict) << name_of(schedule, shape) << ": " << verdict.reason;
  });
}

TEST(PipelineSchedules, HaveTheBubblesThatTheirFormulasSay) {
  for_each_shape([](const Schedule& schedule, const Shape& shape) {
    const double p = shape.ranks, m = shape.micro_batches, v = shape.stages_per_rank();
    double expected = 0;
    if (schedule.name == "naive") {
      expected = (p - 1) / p;
    } else if (schedule.name == "interleaved") {
      if (shape.micro_batches % shape.ranks != 0) return;
      expected = (p - 1) / (v * m + p - 1);
    } else {
      if (v > 1) return;
      expected = (p - 1) / (m + p - 1);
    }
    for (const double backward : {1.0, 2.0}) {
      const Simulation simulation =
          simulate(plan_of(schedule, shape), equal_times(shape.stages, 1, backward));
      ASSERT_NEAR(simulation.bubble, expected, 1e-9) << name_of(schedule, shape);
    }
  });
}

TEST(PipelineSchedules, OfInterleavedTakeNoLongerThanWithMicroBatchesUntilTheyDivide) {
  const auto seconds = [](int ranks, int micro_batches) {
    const Shape shape{.ranks = ranks, .stages = 2 * ranks, .micro_batches = micro_batches};
    return simulate(plan_of(schedule_named("interleaved"), shape), equal_times(shape.stages, 1, 2)).seconds;
  };
  for (int ranks = 2; ranks <= most_ranks; ++ranks) {
    for (int micro_batches = 1; micro_batches <= most_micro_batches; ++micro_batches) {
      const int padded = (micro_batches + ranks - 1) / ranks * ranks;
      EXPECT_LE(seconds(ranks, micro_batches), seconds(ranks, padded) + 1e-9)
          << ranks << ", " << micro_batches;
    }
  }
}

TEST(PipelineSchedules, KeepAsManyActivationsAsTheyPromiseAndNoFewer) {
  const Shape shape{.ranks = 4, .stages = 4, .micro_batches = 8};
  EXPECT_EQ(gpipe_activations(shape, 0), 8);
  for (int rank = 0; rank < 4; ++rank) EXPECT_EQ(one_f_one_b_activations(shape, rank), 4 - rank);
  for (const Schedule& schedule : all_schedules()) {
    const Plan plan = plan_of(schedule, shape);
    Schedule meaner = schedule;
    meaner.most_activations = [](const Shape&, int) { return 0; };
    EXPECT_THAT(verify(meaner, plan).reason,
                HasSubstr("the rank keeps the activations of 1, and 0 was promised"));
  }
  Schedule meaner = schedule_named("1f1b");
  meaner.most_activations = [](const Shape& of, int rank) { return of.ranks - rank - 1; };
  EXPECT_THAT(verify(meaner, plan_of(meaner, shape)).reason,
              HasSubstr("keeps the activations of 4, and 3 was promised"));
}

/// 1F1B of 3 ranks and 4 micro-batches, broken by `damage`.
template <class Damage>
std::string reason_after(const Damage& damage) {
  const Schedule& schedule = schedule_named("1f1b");
  Plan plan = plan_of(schedule, {.ranks = 3, .stages = 3, .micro_batches = 4});
  damage(plan);
  const Verdict verdict = verify(schedule, plan);
  EXPECT_FALSE(verdict);
  return verdict.reason;
}

auto first_of(Actions& actions, ActionKind kind, int micro_batch = 0) {
  return std::find_if(actions.begin(), actions.end(), [&](const Action& action) {
    return action.kind == kind && action.micro_batch == micro_batch;
  });
}

TEST(BrokenPipelines, AreRefused) {
  EXPECT_EQ(
      reason_after([](Plan& plan) { plan.ranks[0].erase(first_of(plan.ranks[0], ActionKind::send, 3)); }),
      "deadlock: rank 0 waits in the receive of the gradient of stage 1 with micro-batch 2 from rank 1");
  EXPECT_EQ(reason_after([](Plan& plan) {
              std::iter_swap(first_of(plan.ranks[0], ActionKind::send, 0),
                             first_of(plan.ranks[0], ActionKind::send, 1));
            }),
            "rank 0, send of the activation of stage 0 with micro-batch 1 to rank 1: what it sends has not "
            "been computed");
  EXPECT_EQ(reason_after([](Plan& plan) {
              std::iter_swap(first_of(plan.ranks[1], ActionKind::receive, 0),
                             first_of(plan.ranks[1], ActionKind::receive, 1));
            }),
            "rank 1, receive of the activation of stage 0 with micro-batch 1 from rank 0: what comes next "
            "from there is the "
            "send of the activation of stage 0 with micro-batch 0 to rank 1");
  EXPECT_EQ(reason_after([](Plan& plan) {
              const auto backward = first_of(plan.ranks[2], ActionKind::backward, 1);
              plan.ranks[2].insert(backward, *backward);
            }),
            "rank 2, backward of stage 2 with micro-batch 1: it has run before");
  EXPECT_EQ(reason_after([](Plan& plan) {
              auto& last = plan.ranks[2];
              std::iter_swap(first_of(last, ActionKind::forward, 1), first_of(last, ActionKind::backward, 1));
            }),
            "rank 2, backward of stage 2 with micro-batch 1: its forward has not run");
  EXPECT_THAT(reason_after([](Plan& plan) { plan.ranks[1].pop_back(); }),
              HasSubstr("deadlock: rank 0 waits in the receive"));
  EXPECT_EQ(reason_after([](Plan& plan) { plan.ranks[0].pop_back(); }),
            "stage 0 has no backward with micro-batch 3");
  EXPECT_THAT(reason_after([](Plan& plan) {
                plan.ranks[0].pop_back();
                plan.ranks[0].pop_back();
              }),
              HasSubstr("is never received"));
  EXPECT_THAT(reason_after([](Plan& plan) { plan.ranks[2][0].peer = 0; }),
              HasSubstr("the stage lies on rank 1"));
  EXPECT_THAT(reason_after([](Plan& plan) { plan.ranks[0][0].stage = 3; }),
              HasSubstr("there is no such stage"));
  EXPECT_THAT(reason_after([](Plan& plan) { plan.ranks[0][0].micro_batch = 4; }),
              HasSubstr("there is no such micro-batch"));
  EXPECT_THAT(reason_after([](Plan& plan) { plan.ranks[0][1].peer = 2; }),
              HasSubstr("that rank does not need it"));
  EXPECT_THAT(reason_after([](Plan& plan) { plan.ranks[0][1].peer = 0; }),
              HasSubstr("that is no other rank"));
  EXPECT_THAT(reason_after([](Plan& plan) { plan.ranks[1].erase(plan.ranks[1].begin()); }),
              HasSubstr("its input is not there"));
  EXPECT_THAT(reason_after([](Plan& plan) { plan.ranks.pop_back(); }), HasSubstr("a plan of 2 ranks for 3"));
}

TEST(BrokenPipelines, OfUnbufferedMessagesThatCrossAreNoDeadlock) {
  // Each rank's send is under way while it waits for the other's: that is what 1F1B needs.
  const Schedule& schedule = schedule_named("1f1b");
  EXPECT_TRUE(verify(schedule, plan_of(schedule, {.ranks = 2, .stages = 2, .micro_batches = 3})));
}

TEST(BrokenPipelines, OfBackwardsInAnotherOrderAreRefused) {
  Schedule schedule = schedule_named("gpipe");
  schedule.order = [](const Shape& shape, int rank) {
    Actions order = gpipe_order(shape, rank);
    std::reverse(order.begin() + shape.micro_batches, order.end());
    return order;
  };
  EXPECT_THAT(verify(schedule, plan_of(schedule, {.ranks = 2, .stages = 2, .micro_batches = 2})).reason,
              HasSubstr("backwards of a stage come in the order of micro-batches"));
}

std::string error_of(std::string_view name, const Shape& shape) {
  try {
    (void)plan_of(schedule_named(name), shape);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    return error.what();
  }
  return "nothing was thrown";
}

TEST(PipelineSchedules, RefuseShapesThatAreNone) {
  EXPECT_EQ(error_of("2f2b", {}),
            "pipeline: there is no schedule \"2f2b\"; there are naive, gpipe, 1f1b, interleaved");
  EXPECT_EQ(error_of("gpipe", {.ranks = 0, .stages = 1}), "pipeline: it has no ranks");
  EXPECT_EQ(error_of("gpipe", {.ranks = 1, .stages = 1, .micro_batches = 0}),
            "pipeline: 0 micro-batches; there has to be one at least");
  EXPECT_EQ(error_of("gpipe", {.ranks = 2, .stages = 3}),
            "pipeline: 3 stages on 2 ranks; each rank is to have as many, one at least");
  EXPECT_EQ(error_of("1f1b", {.ranks = 2, .stages = 4}),
            "pipeline: 1f1b has one stage on each rank, 4 stages on 2 ranks are for interleaved");
}

TEST(PipelineSimulation, CountsMessagesAndUnequalStages) {
  const Plan plan = plan_of(schedule_named("gpipe"), {.ranks = 2, .stages = 2, .micro_batches = 2});
  // Rank 0: F 0..1, 1..2; there at 1.5 and 2.5. Rank 1: F 1.5..3.5, 3.5..5.5; B 5.5..8.5, 8.5..11.5, there at 8.75, 11.75.
  // Rank 0: B 8.75..9.75, 11.75..12.75.
  const std::vector<StageTimes> times = {
      {.forward = 1, .backward = 1, .send_forward = 0.5, .send_backward = 0},
      {.forward = 2, .backward = 3, .send_forward = 0, .send_backward = 0.25}};
  const Simulation simulation = simulate(plan, times);
  EXPECT_DOUBLE_EQ(simulation.seconds, 12.75);
  EXPECT_DOUBLE_EQ(simulation.bubble, 1 - (4.0 + 10.0) / (2 * 12.75));
  EXPECT_DOUBLE_EQ(simulation.ranks[1][1].begin, 3.5);
}

TEST(PipelinePictures, AreThoseOfTheirSimulation) {
  EXPECT_EQ(draw(schedule_named("1f1b"), {.ranks = 2, .stages = 2, .micro_batches = 3}),
            "rank 0  F0 F1 .. .. B0 -- F2 B1 -- .. B2 --\n"
            "rank 1  .. F0 B0 -- F1 B1 -- F2 B2 -- .. ..\n");
  EXPECT_EQ(draw(schedule_named("naive"), {.ranks = 2, .stages = 2, .micro_batches = 1}),
            "rank 0  F0 .. .. .. B0 --\n"
            "rank 1  .. F0 B0 -- .. ..\n");
  EXPECT_THAT(draw(schedule_named("interleaved"), {.ranks = 2, .stages = 4, .micro_batches = 2}),
              HasSubstr("F0a F1a F0b F1b"));
}

TEST(PipelineCut, MakesTheSlowestStageFast) {
  EXPECT_THAT(cut_by_time({1, 1, 1, 1}, 2), ElementsAre(2, 2));
  EXPECT_THAT(cut_by_time({4, 1, 1, 1, 1}, 2), ElementsAre(1, 4));
  EXPECT_THAT(cut_by_time({1, 2, 3, 4, 5}, 3), ElementsAre(3, 1, 1));
  EXPECT_THAT(cut_by_time({1, 1, 1}, 3), ElementsAre(1, 1, 1));
  EXPECT_THAT(cut_by_time({0, 0, 0, 0}, 2), ElementsAre(3, 1));
  EXPECT_THAT(cut_by_time({7}, 1), ElementsAre(1));
}

}  // namespace
}  // namespace lockstep::pipeline
