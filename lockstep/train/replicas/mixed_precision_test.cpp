#include "lockstep/train/replicas/mixed_precision.h"

#include <gtest/gtest.h>

#include <limits>

#include "lockstep/base/failure_test.h"
#include "lockstep/train/data_parallel/data_parallel_test.h"
#include "lockstep/train/sharded/sharded_optimizer.h"
#include "lockstep/train/tensor/ranks_test.h"

namespace lockstep {
namespace {

using namespace test;

TEST(Autocast, ComputesInHalvesWhileItLives) {
  auto net = ones(3, 2);
  {
    const Autocast halves;
    EXPECT_EQ(net(row(1)).scalar_type(), torch::kBFloat16);
    const Autocast off(torch::kBFloat16, false);
    EXPECT_EQ(net(row(1)).scalar_type(), torch::kFloat32);
  }
  EXPECT_EQ(net(row(1)).scalar_type(), torch::kFloat32);
}

TEST(Autocast, LeavesGradientsInTheParametersTypeForTheAverage) {
  on_ranks(2, [](const Group& group) {
    auto net = ones(3, 2);
    DistributedDataParallel ddp(net, group);
    torch::Tensor loss;
    {
      const Autocast halves;
      loss = ddp(row(group.rank() + 1)).sum();
    }
    loss.backward();
    EXPECT_EQ(net->weight.grad().scalar_type(), torch::kFloat32);
    expect_weight_gradient(net, 1.5);
  });
}

TEST(GradientScaler, StepsAsIfTheLossHadNotBeenScaled) {
  auto net = ones(3, 2);
  torch::optim::SGD optimizer(net->parameters(), 0.5);
  GradientScaler scaler;
  scaler.scale(net(row(1)).sum()).backward();
  EXPECT_TRUE(scaler.step(optimizer));
  scaler.update();
  EXPECT_FLOAT_EQ(net->weight[0][0].item<float>(), 0.5);
}

TEST(GradientScaler, ShrinksAtInfiniteGradientsAndGrowsAfterManyGoodSteps) {
  auto net = ones(3, 2);
  torch::optim::SGD optimizer(net->parameters(), 0.0);
  GradientScaler scaler({.initial_scale = 8, .growth_interval = 2});
  const auto step = [&](double value) {
    optimizer.zero_grad();
    scaler.scale(net(row(value)).sum()).backward();
    const bool taken = scaler.step(optimizer);
    scaler.update();
    return taken;
  };
  EXPECT_FALSE(step(std::numeric_limits<double>::infinity()));
  EXPECT_EQ(scaler.factor(), 4);
  EXPECT_EQ(scaler.skipped(), 1U);
  EXPECT_TRUE(step(1));
  EXPECT_EQ(scaler.factor(), 4);
  EXPECT_TRUE(step(1));
  EXPECT_EQ(scaler.factor(), 8);

  std::stringstream file;
  torch::serialize::OutputArchive out;
  scaler.save(out);
  out.save_to(file);
  torch::serialize::InputArchive in;
  in.load_from(file);
  GradientScaler again;
  again.load(in);
  EXPECT_EQ(again.factor(), 8);
}

TEST(GradientScaler, RefusesCallsOutOfTurn) {
  auto net = ones(3, 2);
  torch::optim::SGD optimizer(net->parameters(), 0.0);
  GradientScaler scaler;
  EXPECT_THROW(scaler.update(), Error);
  scaler.unscale(optimizer);
  EXPECT_THROW(scaler.unscale(optimizer), Error);
  scaler.step(optimizer);
  EXPECT_THROW(scaler.step(optimizer), Error);
}

TEST(GradientScaler, LeavesOutTheStepOfTheOneOptimizerOnly) {
  auto good = ones(3, 2), bad = ones(3, 2);
  torch::optim::SGD good_optimizer(good->parameters(), 0.5), bad_optimizer(bad->parameters(), 0.5);
  GradientScaler scaler({.initial_scale = 8});
  scaler.scale(good(row(1)).sum()).backward();
  scaler.scale(bad(row(std::numeric_limits<double>::infinity())).sum()).backward();
  EXPECT_FALSE(scaler.step(bad_optimizer));
  EXPECT_TRUE(scaler.step(good_optimizer));
  scaler.update();
  EXPECT_FLOAT_EQ(good->weight[0][0].item<float>(), 0.5);
  EXPECT_EQ(bad->weight[0][0].item<float>(), 1);
  EXPECT_EQ(scaler.factor(), 4);
}

TEST(GradientScaler, ShrinksWhereTheAverageWasLeftOutForItsInfiniteGradients) {
  on_ranks(2, [](const Group& group) {
    auto net = ones(3, 2);
    DistributedDataParallel ddp(net, group, {.non_finite = NonFinite::skip});
    torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.5).momentum(0.9));
    GradientScaler scaler({.initial_scale = 8});
    scaler.scale(ddp(row(group.rank() == 1 ? std::numeric_limits<double>::infinity() : 1)).sum()).backward();
    EXPECT_FALSE(scaler.step(optimizer));
    scaler.update();
    EXPECT_EQ(scaler.factor(), 4);
  });
}

TEST(GradientScaler, SkipsOnAllRanksWhereOneHasAnInfiniteGradient) {
  on_ranks(2, [](const Group& group) {
    const double value = group.rank() == 1 ? std::numeric_limits<double>::infinity() : 1;
    auto net = ones(3, 2), other = ones(3, 2);
    DistributedDataParallel ddp(net, group);
    torch::optim::SGD optimizer(net->parameters(), 0.5);
    GradientScaler scaler;
    scaler.scale(ddp(row(value)).sum()).backward();
    EXPECT_FALSE(scaler.step(optimizer));

    ShardedOptimizer<torch::optim::SGD> sharded(*other, group, torch::optim::SGDOptions(0.5));
    other(row(value)).sum().backward();
    GradientScaler alone;
    EXPECT_EQ(
        failure_of([&] { alone.step(sharded); }, ErrorCode::invalid_argument),
        "a GradientScaler without a group, for a ShardedOptimizer of several ranks: each would skip steps "
        "on its own; make it with the group, GradientScaler({}, group)");
    sharded.zero_grad();
    GradientScaler together({}, group);
    together.scale(other(row(value)).sum()).backward();
    EXPECT_FALSE(together.step(sharded));
    EXPECT_EQ(other->weight[0][0].item<float>(), 1);
  });
}

}  // namespace
}  // namespace lockstep
