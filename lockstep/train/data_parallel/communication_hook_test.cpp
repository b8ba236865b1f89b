// Gradients that travel as halves or as thin matrices.
#include "lockstep/train/data_parallel/communication_hook.h"

#include <gmock/gmock.h>

#include "lockstep/base/failure_test.h"
#include "lockstep/train/data_parallel/data_parallel_test.h"
#include "lockstep/train/data_parallel/hooks/power_sgd.h"
#include "lockstep/train/data_parallel/hooks/stale_average.h"
#include "lockstep/train/tensor/ranks_test.h"

namespace lockstep {
namespace {

using namespace test;
using testing::HasSubstr;

DataParallelOptions with(std::shared_ptr<CommunicationHook> hook) {
  DataParallelOptions options = small_buckets;
  options.communication_hook = std::move(hook);
  return options;
}

/// Gradients of a layer of 8 x 6, different on each rank and in each step.
torch::Tensor input_of(int rank, int step) {
  return torch::sin(torch::arange(48).to(torch::kFloat32).view({8, 6}) * (rank + 1) + step);
}

torch::nn::Linear make_layer() {
  auto layer = ones(6, 4);
  const torch::NoGradGuard no_grad;
  layer->weight.copy_(torch::cos(torch::arange(24).view({4, 6})));
  return layer;
}

torch::Tensor average_gradient(int ranks, int step) {
  torch::Tensor sum = torch::zeros({4, 6});
  for (int rank = 0; rank < ranks; ++rank) {
    auto plain = make_layer();
    (plain(input_of(rank, step)).pow(2).sum() * 0.01).backward();
    sum += plain->weight.grad() / ranks;
  }
  return sum;
}

torch::Tensor gradient_with(DistributedDataParallel<torch::nn::LinearImpl>& ddp, int rank, int step) {
  ddp.zero_grad();
  (ddp(input_of(rank, step)).pow(2).sum() * 0.01).backward();
  return ddp.module()->weight.grad().clone();
}

TEST(CommunicationHook, AllReduceIsTheAverage) {
  on_ranks(3, [](const Group& group) {
    auto net = make_layer(), other = make_layer();
    DistributedDataParallel ddp(net, group, with(std::make_shared<AllReduceHook>()));
    DistributedDataParallel plain(other, group, small_buckets);
    EXPECT_TRUE(same_bits(gradient_with(ddp, group.rank(), 0), gradient_with(plain, group.rank(), 0)));
  });
}

TEST(CommunicationHook, HalvesAreNearTheAverageAndTheSameOnAllRanks) {
  for (const auto type : {torch::kHalf, torch::kBFloat16}) {
    std::vector<torch::Tensor> found(3);
    on_ranks(3, [&](const Group& group) {
      auto net = make_layer();
      DistributedDataParallel ddp(net, group, with(std::make_shared<HalfHook>(type)));
      for (int step = 0; step < 3; ++step) {
        const auto gradient = gradient_with(ddp, group.rank(), step);
        const auto expected = average_gradient(3, step);
        // Each contribution and the sum are rounded once.
        const double bound =
            (type == torch::kHalf ? 0.001 : 0.008) * (expected.abs().max().item<double>() + 1);
        EXPECT_LT((gradient - expected).abs().max().item<double>(), bound);
        EXPECT_FALSE(torch::equal(gradient, expected)) << "nothing was rounded";
        found[static_cast<std::size_t>(group.rank())] = gradient;
      }
    });
    EXPECT_TRUE(same_bits(found[0], found[1]));
    EXPECT_TRUE(same_bits(found[0], found[2]));
  }
}

TEST(CommunicationHook, HalvesRefuseOtherTypes) { EXPECT_THROW(HalfHook(torch::kFloat32), Error); }

TEST(CommunicationHook, ServesOneWrapperAtATime) {
  on_ranks(2, [](const Group& group) {
    const auto hook = std::make_shared<PowerSgdHook>();
    auto net = make_layer(), other = make_layer();
    {
      DistributedDataParallel ddp(net, group, with(hook));
      EXPECT_EQ(failure_of([&] { DistributedDataParallel second(other, group, with(hook)); },
                           ErrorCode::invalid_argument),
                "the communication hook " + hook->name() +
                    " serves another DistributedDataParallel; make one for each");
    }
    DistributedDataParallel ddp(other, group, with(hook));
    EXPECT_TRUE(gradient_with(ddp, group.rank(), 0).defined());
  });
}

TEST(CommunicationHook, RanksHaveTheSame) {
  const auto endings = run_ranks(2, [](const Group& group) {
    auto net = make_layer();
    const auto type = group.rank() == 0 ? torch::kHalf : torch::kBFloat16;
    DistributedDataParallel ddp(net, group, with(std::make_shared<HalfHook>(type)));
  });
  EXPECT_THAT(endings[0].text, HasSubstr("rank 1's communication hook is bf16, rank 0's is fp16"));
}

PowerSgdOptions power(std::int64_t rank, std::uint64_t start_after) {
  return {.rank = rank, .start_after = start_after, .least_compression = 0.1};
}

TEST(PowerSgd, IsTheAverageUntilItStarts) {
  on_ranks(2, [](const Group& group) {
    auto net = make_layer();
    DistributedDataParallel ddp(net, group, with(std::make_shared<PowerSgdHook>(power(1, 2))));
    for (int step = 0; step < 4; ++step) {
      const auto gradient = gradient_with(ddp, group.rank(), step);
      EXPECT_EQ(torch::allclose(gradient, average_gradient(2, step), 1e-4, 1e-5), step < 2) << step;
    }
  });
}

TEST(PowerSgd, OfFullRankIsTheAverage) {
  on_ranks(3, [](const Group& group) {
    auto net = make_layer();
    DistributedDataParallel ddp(net, group, with(std::make_shared<PowerSgdHook>(power(4, 0))));
    for (int step = 0; step < 3; ++step) {
      const auto gradient = gradient_with(ddp, group.rank(), step);
      EXPECT_TRUE(torch::allclose(gradient, average_gradient(3, step), 1e-4, 1e-4)) << gradient;
    }
  });
}

/// What is sent after all was lost before: the sums over many steps come near each other.
TEST(PowerSgd, LosesNothingOverManyStepsWithErrorFeedback) {
  const auto relative_error_of_sum = [](bool error_feedback) {
    double error = 0;
    std::vector<torch::Tensor> last(2);
    on_ranks(2, [&](const Group& group) {
      auto net = make_layer();
      auto options = power(1, 0);
      options.error_feedback = error_feedback;
      DistributedDataParallel ddp(net, group, with(std::make_shared<PowerSgdHook>(options)));
      auto found = torch::zeros({4, 6}), expected = torch::zeros({4, 6});
      for (int step = 0; step < 60; ++step) {
        last[static_cast<std::size_t>(group.rank())] = gradient_with(ddp, group.rank(), step % 3);
        found += last[static_cast<std::size_t>(group.rank())];
        expected += average_gradient(2, step % 3);
      }
      if (group.rank() == 0) error = ((found - expected).norm() / expected.norm()).item<double>();
    });
    EXPECT_TRUE(same_bits(last[0], last[1])) << "the ranks' models would part";
    return error;
  };
  const double with_feedback = relative_error_of_sum(true);
  EXPECT_LT(with_feedback, 0.05);
  EXPECT_GT(relative_error_of_sum(false), 2 * with_feedback);
}

TEST(StaleAverage, IsThatOfTheStepBefore) {
  on_ranks(3, [](const Group& group) {
    auto net = make_layer();
    DistributedDataParallel ddp(net, group, with(std::make_shared<StaleAverageHook>()));
    for (int step = 0; step < 6; ++step) {
      const auto gradient = gradient_with(ddp, group.rank(), step);
      if (step == 1) continue;  // 0 if buckets were made anew before it
      const auto expected = step == 0 ? torch::zeros({4, 6}) : average_gradient(3, step - 1);
      EXPECT_TRUE(torch::allclose(gradient, expected, 1e-5, 1e-6)) << step << gradient;
    }
  });
}

/// What StaleAverageHook's comment says of learning rates: where 2 / curvature is the largest one that
/// converges, 1 / curvature is with a stale gradient.
TEST(StaleAverage, ConvergesUpToHalfTheLearningRate) {
  const auto distance_after_100_steps = [](double learning_rate, bool stale) {
    double distance = 0;
    on_ranks(2, [&](const Group& group) {
      auto net = ones(1, 1);  // (weight + bias)^2 / 2: along weight + bias the curvature is 2
      DistributedDataParallel ddp(net, group, with(stale ? std::make_shared<StaleAverageHook>() : nullptr));
      torch::optim::SGD sgd(net->parameters(), learning_rate);
      for (int step = 0; step < 100; ++step) {
        sgd.zero_grad();
        (ddp(torch::ones({1, 1})).pow(2).sum() / 2).backward();
        sgd.step();
      }
      if (group.rank() == 0) distance = std::abs(net(torch::ones({1, 1})).item<double>());
    });
    return distance;
  };
  EXPECT_LT(distance_after_100_steps(0.9, false), 1e-6);
  EXPECT_GT(distance_after_100_steps(0.9, true), 1e6);
  EXPECT_LT(distance_after_100_steps(0.45, true), 0.1);
}

TEST(PowerSgd, RefusesARankBelowOne) { EXPECT_THROW(PowerSgdHook({.rank = 0}), Error); }

}  // namespace
}  // namespace lockstep
