#include <gtest/gtest.h>

#include "lockstep/train/tensor/ranks_test.h"
#include "lockstep/train/trials/trial_test.h"

namespace lockstep {
namespace {

using test::Outcome;
using test::Rule;
using test::Sabotage;
using test::Trial;
using test::Way;

Outcome worst_of_all_ranks(int ranks, const Trial& trial) {
  std::vector<Outcome> outcomes(static_cast<std::size_t>(ranks));
  test::on_ranks(ranks, [&](const Group& group) {
    outcomes[static_cast<std::size_t>(group.rank())] = compare_with_one_process(group, trial);
  });
  for (const auto& outcome : outcomes) {
    if (!outcome.passes(trial)) return outcome;
  }
  return outcomes.front();
}

class Equivalence : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, Equivalence, testing::Values(1, 2, 3, 4));

void expect_pass(int ranks, const Trial& trial) {
  const auto outcome = worst_of_all_ranks(ranks, trial);
  EXPECT_TRUE(outcome.passes(trial)) << to_string(trial) << ": " << outcome.text();
  testing::Test::RecordProperty(to_string(trial), outcome.text());
}

TEST_P(Equivalence, HoldsForOptimizersTypesAndFormsOfZeroGrad) {
  for (const auto rule : {Rule::sgd, Rule::nesterov, Rule::adam, Rule::adamw}) {
    for (const auto type : {torch::kFloat64, torch::kFloat32}) {
      for (const bool set_to_none : {true, false}) {
        if (!set_to_none && rule != Rule::sgd) continue;
        for (const auto& [sharded, heap] : {std::pair(false, true), {false, false}, {true, true}}) {
          expect_pass(GetParam(), {.rule = rule,
                                   .sharded = sharded,
                                   .shared_heap = heap,
                                   .type = type,
                                   .set_to_none = set_to_none});
        }
      }
    }
  }
}

TEST_P(Equivalence, HoldsForEveryOptionAndHook) {
  for (const auto way :
       {Way::find_unused, Way::static_graph, Way::no_sync, Way::join, Way::skip_non_finite,
        Way::all_reduce_hook, Way::fp16_hook, Way::bf16_hook, Way::power_sgd, Way::thin_power_sgd}) {
    for (const auto type : {torch::kFloat64, torch::kFloat32})
      expect_pass(GetParam(), {.type = type, .way = way});
  }
}

TEST_P(Equivalence, HoldsForTheOptimizerAndTheTapeAsHorovodHasThem) {
  for (const auto way :
       {Way::optimizer, Way::optimizer_in_two_passes, Way::optimizer_groups, Way::optimizer_predivided,
        Way::optimizer_fp16, Way::optimizer_bf16, Way::tape, Way::tape_fp16, Way::tape_bf16}) {
    for (const auto rule : {Rule::sgd, Rule::adam}) {
      for (const auto type : {torch::kFloat64, torch::kFloat32}) {
        // Adam divides by the gradient's own size, and so makes much of what is rounded off a small one.
        if (rule == Rule::adam && Outcome::bound({.type = type, .way = way}) > 1e-4) continue;
        expect_pass(GetParam(), {.rule = rule, .type = type, .way = way});
      }
    }
  }
}

TEST_P(Equivalence, HoldsWhereGradientsAreClipped) {
  for (const bool sharded : {false, true})
    expect_pass(GetParam(), {.rule = Rule::adamw, .sharded = sharded, .max_norm = 0.1});
}

struct RuleInType {
  Rule rule;
  torch::ScalarType type;
};

class Sabotaged : public testing::TestWithParam<std::tuple<Sabotage, RuleInType>> {};
// Not Adam in f32: it divides by the gradient's own size, so that gradients which are all doubled change less
// than f32 can show.
INSTANTIATE_TEST_SUITE_P(Trial, Sabotaged,
                         testing::Combine(testing::Values(Sabotage::sum, Sabotage::no_broadcast,
                                                          Sabotage::same_shard, Sabotage::one_bucket_left_out,
                                                          Sabotage::doubled_gradients),
                                          testing::Values(RuleInType{Rule::sgd, torch::kFloat64},
                                                          RuleInType{Rule::sgd, torch::kFloat32},
                                                          RuleInType{Rule::adam, torch::kFloat64})));

TEST_P(Sabotaged, IsNoticed) {
  const auto [sabotage, optimizer] = GetParam();
  const Trial trial{
      .rule = optimizer.rule, .type = optimizer.type, .set_to_none = false, .sabotage = sabotage};
  const auto outcome = worst_of_all_ranks(2, trial);
  EXPECT_FALSE(outcome.passes(trial)) << outcome.text();
}

}  // namespace
}  // namespace lockstep
