#include "lockstep/train/data_parallel/hooks/gradient_noise.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>

#include "lockstep/base/error.h"
#include "lockstep/train/data_parallel/data_parallel_test.h"
#include "lockstep/train/tensor/ranks_test.h"

namespace lockstep {
namespace {

using testing::Optional;

TEST(GradientNoise, IsExactWhereLengthsAreWhatIsExpectedOfThem) {
  constexpr double signal = 4, noise = 100;  // a noise scale of 25 samples
  const auto squared = [](double batch) { return signal + noise / batch; };
  GradientNoise estimate(0.9);
  EXPECT_EQ(estimate.scale(), std::nullopt);
  for (const double big : {64, 128, 256}) {
    estimate.add(32, squared(32), big, squared(big));
    EXPECT_NEAR(estimate.signal(), signal, 1e-9);
    EXPECT_NEAR(estimate.noise(), noise, 1e-9);
    EXPECT_THAT(estimate.scale(), Optional(testing::DoubleNear(25, 1e-9)));
  }
}

TEST(GradientNoise, IsAMovingAverageOfBothEstimates) {
  GradientNoise estimate(0.5);
  estimate.add(1, 3, 2, 2);  // |G|^2 = 1, S = 2
  estimate.add(1, 9, 2, 6);  // |G|^2 = 3, S = 6
  EXPECT_NEAR(estimate.signal(), (0.5 * 1 + 3) / 1.5, 1e-12);
  EXPECT_NEAR(estimate.noise(), (0.5 * 2 + 6) / 1.5, 1e-12);
}

TEST(GradientNoise, IsNothingWhileNoiseHidesTheGradient) {
  GradientNoise estimate;
  estimate.add(1, 10, 2, 5);  // |G|^2 = 0
  EXPECT_EQ(estimate.scale(), std::nullopt);
  estimate.add(1, 10, 2, 4);  // below 0
  EXPECT_EQ(estimate.scale(), std::nullopt);
  EXPECT_LT(estimate.signal(), 0);
}

TEST(GradientNoise, LeavesOutWhatIsNotFinite) {
  GradientNoise estimate;
  estimate.add(1, std::numeric_limits<double>::infinity(), 2, 1);
  estimate.add(1, 2, 2, std::nan(""));
  EXPECT_EQ(estimate.noise(), 0);
  estimate.add(1, 3, 2, 2);
  EXPECT_THAT(estimate.scale(), Optional(testing::DoubleNear(2, 1e-12)));
}

TEST(GradientNoise, RefusesWhatHasNoMeaning) {
  const auto refusal = [](const auto& action) -> std::string {
    try {
      action();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      return error.what();
    }
    return "accepted";
  };
  EXPECT_EQ(refusal([] { GradientNoise(1.0); }),
            "the decay of a gradient noise scale is at least 0 and less than 1, found 1");
  EXPECT_EQ(refusal([] { GradientNoise().add(8, 1, 8, 1); }),
            "a gradient noise scale needs a small batch and a larger one, found 8 and 8 samples");
  EXPECT_EQ(refusal([] { GradientNoise().add(0, 1, 8, 1); }),
            "a gradient noise scale needs a small batch and a larger one, found 0 and 8 samples");
  EXPECT_EQ(refusal([] { NoiseScaleHook(0); }), "a rank's batch has at least 1 sample, found 0");
}

/// Samples whose gradient of a weight is 2 or 4, each with probability 1/2, and of a bias 1: |G|^2 is 9 + 1,
/// S is 1. Over the four pairs that two ranks can draw, estimates average to these exactly.
TEST(NoiseScaleHook, MeasuresAKnownDistribution) {
  std::array<double, 2> scales{};
  test::on_ranks(2, [&](const Group& group) {
    auto net = test::ones(1, 1), other = test::ones(1, 1);
    const auto hook = std::make_shared<NoiseScaleHook>(1, 0.999);
    DataParallelOptions options = test::small_buckets;  // one for the weight, one for the bias
    options.communication_hook = hook;
    DistributedDataParallel ddp(net, group, options);
    DistributedDataParallel plain(other, group, test::small_buckets);
    for (int step = 0; step < 400; ++step) {
      const int drawn = group.rank() == 0 ? step : step / 2;
      const auto sample = torch::full({1, 1}, drawn % 2 == 0 ? 2.0 : 4.0);
      ddp.zero_grad();
      ddp(sample).sum().backward();
      plain.zero_grad();
      plain(sample).sum().backward();
      ASSERT_TRUE(test::same_bits(net->weight.grad(), other->weight.grad())) << "it is still the average";
    }
    EXPECT_NEAR(hook->estimate().signal(), 10, 0.05);
    EXPECT_NEAR(hook->estimate().noise(), 1, 0.01);
    scales[static_cast<std::size_t>(group.rank())] = hook->estimate().scale().value_or(0);
  });
  EXPECT_NEAR(scales[0], 0.1, 0.002);
  EXPECT_EQ(scales[0], scales[1]) << "ranks must agree";
}

TEST(NoiseScaleHook, LeavesOutStepsThatSomeRanksHaveNoInputsFor) {
  test::on_ranks(2, [](const Group& group) {
    auto net = test::ones(3, 1);
    const auto hook = std::make_shared<NoiseScaleHook>(4);
    DistributedDataParallel ddp(net, group, {.communication_hook = hook});
    ddp.join([&] {
      for (int step = 0; step < (group.rank() == 0 ? 3 : 1); ++step) {
        ddp.zero_grad();
        ddp(test::row(group.rank() == 0 ? 1 : 2)).sum().backward();
      }
    });
    // One step counts: gradients 1 1 1 1 and 2 2 2 1 have squared lengths 4 and 13, their mean 7.75.
    EXPECT_NEAR(hook->estimate().signal(), (8 * 7.75 - 4 * 8.5) / 4, 1e-9);
    EXPECT_NEAR(hook->estimate().noise(), (8.5 - 7.75) / (1.0 / 4 - 1.0 / 8), 1e-9);
  });
}

TEST(NoiseScaleHook, HasNothingToSayOfOneRank) {
  auto net = test::ones(3, 1);
  const auto hook = std::make_shared<NoiseScaleHook>(4);
  DistributedDataParallel ddp(net, Group(), {.communication_hook = hook});
  ddp(test::row(1)).sum().backward();
  EXPECT_EQ(hook->estimate().scale(), std::nullopt);
}

}  // namespace
}  // namespace lockstep
