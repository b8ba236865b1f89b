#include "lockstep/train/optimizer/learning_rate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "lockstep/base/error.h"
#include "lockstep/train/sharded/sharded_optimizer.h"
#include "lockstep/train/tensor/ranks_test.h"

namespace lockstep {
namespace {

using testing::Pointwise;

std::vector<double> rates(const LearningRate& schedule, std::initializer_list<std::uint64_t> steps) {
  std::vector<double> found;
  for (const std::uint64_t step : steps) found.push_back(schedule.at(step));
  return found;
}

MATCHER(IsAbout, "") { return std::abs(std::get<0>(arg) - std::get<1>(arg)) < 1e-12; }

void expect_rates(const LearningRate& schedule, std::initializer_list<std::uint64_t> steps,
                  const std::vector<double>& expected) {
  EXPECT_THAT(rates(schedule, steps), Pointwise(IsAbout(), expected));
}

TEST(LearningRate, OfANumberIsThatNumber) { expect_rates(0.3, {0, 1, 1'000'000'000}, {0.3, 0.3, 0.3}); }

TEST(LearningRate, DecaysInSteps) {
  expect_rates(LearningRate::step_decay(1, 10), {0, 9, 10, 19, 20, 35}, {1, 1, 0.1, 0.1, 0.01, 0.001});
  expect_rates(LearningRate::step_decay(8, 1, 0.5), {0, 1, 2, 3}, {8, 4, 2, 1});
}

TEST(LearningRate, FollowsACosineAndStaysAtItsEnd) {
  expect_rates(LearningRate::cosine(1, 6), {0, 2, 3, 4, 6, 7, 99}, {1, 0.75, 0.5, 0.25, 0, 0, 0});
  expect_rates(LearningRate::cosine(1, 2, 0.2), {0, 1, 2, 3}, {1, 0.6, 0.2, 0.2});
}

TEST(LearningRate, GrowsWithTheRanksOverTheWarmUp) {
  expect_rates(LearningRate(0.1).scaled(4, 3), {0, 1, 2, 3, 4, 99}, {0.1, 0.2, 0.3, 0.4, 0.4, 0.4});
  expect_rates(LearningRate(0.1).scaled(1, 3), {0, 1, 5}, {0.1, 0.1, 0.1});
  expect_rates(LearningRate(0.1).scaled(4, 0), {0, 1}, {0.4, 0.4});
}

TEST(LearningRate, IsMadeOfSchedules) {
  // As Goyal et al. have it: decays count from the beginning, also during the warm-up.
  expect_rates(LearningRate::step_decay(1, 4).scaled(3, 2), {0, 1, 2, 3, 4, 8}, {1, 2, 3, 3, 0.3, 0.03});
  const auto parts = LearningRate(0.5).then(2, LearningRate::cosine(1, 2)).then(4, 0.25);
  expect_rates(parts, {0, 1, 2, 3, 4, 5}, {0.5, 0.5, 1, 0.5, 0.25, 0.25});
}

TEST(LearningRate, ReachesEveryGroupOfParameters) {
  const auto a = torch::ones({2}, torch::requires_grad()), b = torch::ones({3}, torch::requires_grad());
  torch::optim::AdamW adam(
      {torch::optim::OptimizerParamGroup({a}),
       torch::optim::OptimizerParamGroup({b}, std::make_unique<torch::optim::AdamWOptions>(7.0))},
      torch::optim::AdamWOptions(1.0));
  LearningRate::step_decay(1, 5).apply(adam, 12);
  for (const auto& group : adam.param_groups()) EXPECT_NEAR(group.options().get_lr(), 0.01, 1e-12);
}

TEST(LearningRate, IsTheOneThatAShardedOptimizerStepsWith) {
  test::on_ranks(2, [](const Group& group) {
    torch::nn::Linear net(3, 1);
    {
      const torch::NoGradGuard no_grad;
      for (auto& parameter : net->parameters()) parameter.fill_(1);
    }
    ShardedOptimizer<torch::optim::SGD> sgd(*net, group, torch::optim::SGDOptions(9));
    const LearningRate rate = LearningRate(0.25).scaled(2, 1);
    for (std::uint64_t step = 0; step < 2; ++step) {
      rate.apply(sgd, step);
      sgd.zero_grad();
      net(torch::ones({1, 3})).sum().backward();
      sgd.step();
    }
    EXPECT_TRUE(torch::allclose(net->weight.detach(), torch::full({1, 3}, 1 - 0.25 - 0.5))) << net->weight;
  });
}

TEST(LearningRate, RefusesWhatIsNone) {
  const double inf = std::numeric_limits<double>::infinity();
  const auto refusal = [](const auto& make) -> std::string {
    try {
      make();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      return error.what();
    }
    return "accepted";
  };
  EXPECT_EQ(refusal([] { (void)LearningRate(-0.5); }),
            "a learning rate is finite and not negative, found -0.5");
  EXPECT_EQ(refusal([&] { (void)LearningRate::cosine(inf, 3); }),
            "a learning rate is finite and not negative, found inf");
  EXPECT_EQ(refusal([] { (void)LearningRate::cosine(1, 3, std::nan("")); }),
            "the lowest learning rate of a cosine is finite and not negative, found nan");
  EXPECT_EQ(refusal([] { (void)LearningRate::cosine(1, 0); }),
            "the length of a cosine is at least 1 step, found 0");
  EXPECT_EQ(refusal([] { (void)LearningRate::step_decay(1, 0); }),
            "the time between two decays of a learning rate is at least 1 step, found 0");
  EXPECT_EQ(refusal([] { (void)LearningRate::step_decay(1, 2, -1); }),
            "the factor by which a learning rate decays is finite and not negative, found -1");
  EXPECT_EQ(refusal([] { (void)LearningRate(1).scaled(0, 2); }),
            "a learning rate is scaled by at least 1 rank, found 0");
  EXPECT_EQ(refusal([] { (void)LearningRate(1).then(0, 2); }),
            "what stands before the next part of a learning rate is at least 1 step, found 0");
}

}  // namespace
}  // namespace lockstep
