#include "lockstep/train/checkpoint/training_state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/train/tensor/ranks_test.h"

namespace lockstep {
namespace {

using testing::HasSubstr;

TEST(RandomState, BringsTheSameNumbersAgain) {
  torch::manual_seed(11);
  (void)torch::rand({3});
  (void)torch::randn({5});  // leaves half a pair of normal numbers behind
  const auto state = random_state();
  const auto uniform = torch::rand({20});
  const auto normal = torch::randn({3});
  set_random_state(state);
  EXPECT_TRUE(test::same_bits(torch::rand({20}), uniform));
  EXPECT_TRUE(test::same_bits(torch::randn({3}), normal));
}

std::string refusal_to_set(const torch::Tensor& state) {
  try {
    set_random_state(state);
  } catch (const Error& error) {
    return std::string(to_string(error.code())) + ": " + error.what();
  }
  return "accepted";
}

TEST(RandomState, IsRefusedWhereItIsNone) {
  EXPECT_THAT(refusal_to_set(torch::Tensor()),
              HasSubstr("invalid_argument: there is no random state to set"));
  EXPECT_THAT(refusal_to_set(torch::zeros({7}, torch::kUInt8)),
              HasSubstr("corrupt_data: libtorch takes this for no state of its generator"));
  EXPECT_EQ(refusal_to_set(random_state()), "accepted");
}

TEST(TrainingState, IsThatOfEachRankOnAsManyRanks) {
  test::on_ranks(3, [](const Group& group) {
    const auto mine = torch::full({5}, group.rank(), torch::kUInt8);
    const auto record = gather_record(
        group, TrainingState{
                   .step = 4, .schedule_step = 2, .sampler = SamplerPosition{.samples = 9}, .random = mine});
    EXPECT_EQ(record->random.size(), group.rank() == 0 ? 3U : 0U);
    if (group.rank() != 0) return;
    for (int rank = 0; rank < 3; ++rank) {
      const auto state = state_of_rank(*record, rank);
      EXPECT_EQ(state.step, 4U);
      EXPECT_EQ(state.schedule_step, 2U);
      EXPECT_EQ(state.sampler->samples, 9U);
      EXPECT_TRUE(test::same_bits(state.random, torch::full({5}, rank, torch::kUInt8)));
    }
  });
}

TEST(TrainingState, HasRandomNumbersOfItsOwnOnEachMoreRank) {
  const TrainingRecord record{.random = {"state of rank 0", "state of rank 1"}};
  const auto third = state_of_rank(record, 2).random, fourth = state_of_rank(record, 3).random;
  EXPECT_TRUE(test::same_bits(third, state_of_rank(record, 2).random));
  EXPECT_FALSE(test::same_bits(third, fourth));
  const auto before = random_state();
  EXPECT_EQ(refusal_to_set(third), "accepted");
  EXPECT_EQ(refusal_to_set(fourth), "accepted");
  set_random_state(before);
  EXPECT_FALSE(test::same_bits(third, state_of_rank({.random = {"another"}}, 2).random));
}

TEST(TrainingState, NeedNotHaveAll) {
  EXPECT_FALSE(gather_record(Group(), std::nullopt));
  const auto record = gather_record(Group(), TrainingState{.step = 1}).value();
  EXPECT_FALSE(state_of_rank(record, 0).random.defined());
  EXPECT_FALSE(state_of_rank(record, 0).sampler);
}

TEST(TrainingState, IsSavedOnAllRanksOrOnNone) {
  const auto endings = test::run_ranks(2, [](const Group& group) {
    std::optional<TrainingState> state;
    if (group.rank() == 0) state = TrainingState{.random = torch::zeros({5}, torch::kUInt8)};
    gather_record(group, state);
  });
  for (const auto& ending : endings) {
    EXPECT_EQ(ending.code, ErrorCode::mismatch);
    EXPECT_EQ(ending.text,
              "rank 1's saved training state is none, rank 0's is with 5 bytes of random state. Save "
              "CheckpointInfo::training alike on every rank");
  }
}

TEST(TrainingState, RefusesARandomStateThatIsNone) {
  try {
    gather_record(Group(), TrainingState{.random = torch::zeros({3})});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_STREQ(error.what(), "TrainingState::random is f32 [3]; expected what random_state() returns");
  }
}

TEST(AdvanceSchedule, GoesOnWhereTheOtherWas) {
  const auto make = [] {
    return torch::optim::SGD({torch::zeros({1}, torch::requires_grad())}, torch::optim::SGDOptions(1));
  };
  const auto rate = [](const torch::optim::SGD& sgd) { return sgd.param_groups()[0].options().get_lr(); };
  auto sgd = make(), other = make();
  torch::optim::StepLR schedule(sgd, 3, 0.5), resumed(other, 3, 0.5);
  for (int step = 0; step < 4; ++step) schedule.step();
  other.param_groups()[0].options().set_lr(rate(sgd));  // as loading a checkpoint does
  advance_schedule(resumed, other, 4);
  for (int step = 0; step < 9; ++step) {
    EXPECT_EQ(rate(other), rate(sgd));
    schedule.step();
    resumed.step();
  }
  EXPECT_LT(rate(sgd), 0.2);
}

}  // namespace
}  // namespace lockstep
