#include "lockstep/train/replicas/diloco.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "lockstep/train/tensor/ranks_test.h"
#include "lockstep/train/tensor/tensor_collectives.h"

namespace lockstep {
namespace {

using test::on_ranks;
using test::run_ranks;
using ::testing::HasSubstr;
using torch::Tensor;

/// A linear model of 3 parameters, whose values are `value`.
torch::nn::Linear model(double value) {
  torch::nn::Linear net(torch::nn::LinearOptions(3, 1).bias(false));
  net->to(torch::kFloat64);
  const torch::NoGradGuard no_grad;
  net->weight.fill_(value);
  return net;
}

/// This rank's samples of a step.
Tensor batch(int step, int rank) {
  return torch::randn({4, 3}, at::detail::createCPUGenerator(static_cast<std::uint64_t>(100 * step + rank)),
                      torch::kFloat64);
}
Tensor loss_of(const Tensor& weight, const Tensor& x) {
  return (x.matmul(weight.flatten()) - x.sum(1)).pow(2).mean();
}

TEST(DiLoCo, WithEveryStepIsDataParallelTraining) {
  on_ranks(3, [](const Group& world) {
    auto net = model(world.rank());
    DiLoCo outer(net, world, torch::optim::SGDOptions(1.0), {.every = 1});
    EXPECT_EQ(net->weight.detach().sum().item<double>(), 0);  // rank 0's
    torch::optim::SGD sgd(net->parameters(), 0.05);
    Tensor whole = torch::zeros({1, 3}, torch::kFloat64).set_requires_grad(true);
    for (int step = 0; step < 30; ++step) {
      sgd.zero_grad();
      loss_of(net->weight, batch(step, world.rank())).backward();
      sgd.step();
      EXPECT_TRUE(outer.step());
      whole.mutable_grad().reset();
      loss_of(whole, torch::cat({batch(step, 0), batch(step, 1), batch(step, 2)})).backward();
      const torch::NoGradGuard no_grad;
      whole -= 0.05 * whole.grad();
    }
    EXPECT_LE((net->weight - whole).norm().item<double>() / whole.norm().item<double>(), 1e-12);
  });
}

TEST(DiLoCo, MovesTheCommonModelByTheOuterOptimizer) {
  on_ranks(2, [](const Group& world) {
    auto net = model(1);
    const auto options = torch::optim::SGDOptions(0.7).momentum(0.9).nesterov(true);
    DiLoCo outer(net, world, options, {.every = 4});
    torch::optim::SGD sgd(net->parameters(), 0.02);
    // The same by hand, both ranks in one.
    Tensor common = torch::ones({1, 3}, torch::kFloat64);
    torch::optim::SGD reference({common}, options);
    int averages = 0;
    for (int step = 0; step < 20;) {
      std::vector<Tensor> locals;
      for (int rank = 0; rank < 2; ++rank) {
        Tensor local = common.clone();
        for (int i = 0; i < 4; ++i) {
          local = local.detach().set_requires_grad(true);
          loss_of(local, batch(step + i, rank)).backward();
          local = local.detach() - 0.02 * local.grad();
        }
        locals.push_back(local.detach());
      }
      common.mutable_grad() = common - (locals[0] + locals[1]) / 2;
      reference.step();
      for (int i = 0; i < 4; ++i, ++step) {
        sgd.zero_grad();
        loss_of(net->weight, batch(step, world.rank())).backward();
        sgd.step();
        averages += outer.step() ? 1 : 0;
      }
      EXPECT_TRUE(torch::allclose(net->weight.detach(), common, 1e-10, 1e-12));
      EXPECT_TRUE(test::same_bits(net->weight.detach(), outer.parameters()[0]));
    }
    EXPECT_EQ(averages, 5);
  });
}

TEST(DiLoCo, AveragesBuffersAndTakesModelsOfSeveralTypes) {
  on_ranks(2, [](const Group& world) {
    torch::nn::Sequential net(torch::nn::BatchNorm1d(2), torch::nn::Linear(2, 2));
    net[1]->to(torch::kFloat64);
    DiLoCo outer(net, world, torch::optim::SGDOptions(1.0), {.every = 1});
    {
      const torch::NoGradGuard no_grad;
      net[0]->as<torch::nn::BatchNorm1d>()->running_mean.fill_(world.rank());
      net[0]->as<torch::nn::BatchNorm1d>()->num_batches_tracked.fill_(7 + world.rank());
      net[0]->as<torch::nn::BatchNorm1d>()->weight.fill_(2 * world.rank());
      net[1]->as<torch::nn::Linear>()->bias.fill_(4 * world.rank());
    }
    EXPECT_TRUE(outer.step());
    EXPECT_EQ(net[0]->as<torch::nn::BatchNorm1d>()->running_mean[0].item<double>(), 0.5);
    EXPECT_EQ(net[0]->as<torch::nn::BatchNorm1d>()->num_batches_tracked.item<double>(), 7);
    EXPECT_EQ(net[0]->as<torch::nn::BatchNorm1d>()->weight[1].item<double>(), 1);
    EXPECT_EQ(net[1]->as<torch::nn::Linear>()->bias[0].item<double>(), 2);
  });
}

TEST(DiLoCo, NamesTheRankWhoseModelIsNoNumber) {
  for (const NonFinite non_finite : {NonFinite::stop, NonFinite::skip, NonFinite::ignore}) {
    const auto endings = run_ranks(3, [&](const Group& world) {
      auto net = model(1);
      DiLoCo outer(net, world, torch::optim::SGDOptions(1.0), {.every = 2, .non_finite = non_finite});
      EXPECT_FALSE(outer.step());
      const torch::NoGradGuard no_grad;
      net->weight.fill_(world.rank() == 1 ? std::nan("") : 3.0);
      const auto finish = [&] {
        const double weight = outer.parameters()[0][0][0].item<double>();
        EXPECT_EQ(std::isnan(weight), non_finite == NonFinite::ignore);
        EXPECT_TRUE(std::isnan(weight) || weight == 1) << weight;
      };
      try {
        outer.step();
      } catch (...) {
        finish();
        throw;
      }
      finish();
      if (non_finite == NonFinite::skip) {
        EXPECT_EQ(net->weight[0][0].item<double>(), 1);
      }
    });
    for (const auto& ending : endings) {
      EXPECT_EQ(ending.ok, non_finite != NonFinite::stop) << ending.text;
      if (ending.ok) continue;
      EXPECT_EQ(ending.peer, 1);
      EXPECT_EQ(ending.text,
                "DiLoCo, after 2 steps: the model of rank 1 is infinite or no number; the common model has "
                "not moved");
    }
  }
}

TEST(DiLoCo, WhereOneGoesAstrayKeepsItsBuffers) {
  on_ranks(2, [](const Group& world) {
    torch::nn::BatchNorm1d net(torch::nn::BatchNormOptions(3).momentum(0.5));
    net->register_buffer("mask", torch::full({2}, -INFINITY));
    DiLoCo outer(net, world, torch::optim::SGDOptions(1.0), {.every = 1, .non_finite = NonFinite::skip});
    const torch::NoGradGuard no_grad;
    for (const double statistic : {1.0, std::nan("")}) {
      net->running_mean.fill_(world.rank() == 1 ? statistic : 3.0);
      if (std::isnan(statistic) && world.rank() == 1) net->weight.fill_(statistic);
      outer.step();
      EXPECT_EQ(net->running_mean[0].item<double>(), 2);
      EXPECT_EQ(net->weight[0].item<double>(), 1);
    }
  });
}

TEST(DiLoCo, RefusesAParameterThatWasFrozen) {
  for (const auto& ending : run_ranks(2, [](const Group& world) {
         torch::nn::Linear net(3, 1);
         net->bias.set_requires_grad(false);
         DiLoCo outer(net, world, torch::optim::SGDOptions(1.0), {.every = 1});
         outer.step();
         net->bias.set_requires_grad(true);
         outer.step();
       }))
    EXPECT_EQ(
        ending.text,
        "DiLoCo: parameter bias wants a gradient, and wanted none when this was made: make another one");
}

TEST(DiLoCo, RefusesWhatDiffersAndEveryBelowOne) {
  const auto differing = run_ranks(2, [](const Group& world) {
    const DiLoCo outer(model(1), world, torch::optim::SGDOptions(1.0), {.every = 10 + world.rank()});
  });
  for (const auto& ending : differing) {
    EXPECT_EQ(ending.code, ErrorCode::mismatch);
    EXPECT_THAT(ending.text, HasSubstr("rank 1's every is 11, rank 0's is 10"));
  }
  const auto rates = run_ranks(2, [](const Group& world) {
    const DiLoCo outer(model(1), world, torch::optim::SGDOptions(1.0 + world.rank()));
  });
  EXPECT_THAT(rates[0].text, HasSubstr("rank 1's outer optimizer is learning rate 2, momentum 0"));
  for (const auto& ending : run_ranks(2, [](const Group& world) {
         const DiLoCo outer(model(1), world, torch::optim::SGDOptions(1.0), {.every = 0});
       })) {
    EXPECT_EQ(ending.code, ErrorCode::invalid_argument);
    EXPECT_THAT(ending.text, HasSubstr("every is 0; it is a number of steps, 1 or more"));
  }
}

}  // namespace
}  // namespace lockstep
