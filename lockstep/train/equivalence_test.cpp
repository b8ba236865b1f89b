#include <gtest/gtest.h>

#include "lockstep/train/ranks_test.h"
#include "lockstep/train/trial_test.h"

namespace lockstep {
namespace {

using test::Outcome;
using test::Sabotage;
using test::Trial;

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

TEST_P(Equivalence, HoldsForBothOptimizersTypesAndFormsOfZeroGrad) {
  for (const bool adam : {false, true}) {
    for (const auto type : {torch::kFloat64, torch::kFloat32}) {
      for (const bool set_to_none : {true, false}) {
        for (const auto& [sharded, heap] : {std::pair(false, true), {false, false}, {true, true}}) {
          const Trial trial{.adam = adam,
                            .sharded = sharded,
                            .shared_heap = heap,
                            .type = type,
                            .set_to_none = set_to_none};
          const auto outcome = worst_of_all_ranks(GetParam(), trial);
          EXPECT_TRUE(outcome.passes(trial)) << (sharded ? "sharded "
                                                 : heap  ? "with a heap "
                                                         : "")
                                             << (adam ? "Adam " : "SGD ") << type << ": " << outcome.text();
          RecordProperty(std::string(adam ? "adam_" : "sgd_") + c10::toString(type), outcome.text());
        }
      }
    }
  }
}

struct Optimizer {
  bool adam;
  torch::ScalarType type;
};

class Sabotaged : public testing::TestWithParam<std::tuple<Sabotage, Optimizer>> {};
// Not Adam in f32: it divides by the gradient's own size, so that gradients which are all doubled change less
// than f32 can show.
INSTANTIATE_TEST_SUITE_P(
    Trial, Sabotaged,
    testing::Combine(testing::Values(Sabotage::sum, Sabotage::no_broadcast, Sabotage::same_shard,
                                     Sabotage::one_bucket_left_out, Sabotage::doubled_gradients),
                     testing::Values(Optimizer{false, torch::kFloat64}, Optimizer{false, torch::kFloat32},
                                     Optimizer{true, torch::kFloat64})));

TEST_P(Sabotaged, IsNoticed) {
  const auto [sabotage, optimizer] = GetParam();
  const Trial trial{
      .adam = optimizer.adam, .type = optimizer.type, .set_to_none = false, .sabotage = sabotage};
  const auto outcome = worst_of_all_ranks(2, trial);
  EXPECT_FALSE(outcome.passes(trial)) << outcome.text();
}

}  // namespace
}  // namespace lockstep
