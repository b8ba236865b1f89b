#include "lockstep/train/elastic/part_gradients.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <mutex>

#include "lockstep/train/tensor/ranks_test.h"

namespace lockstep {
namespace {

using test::on_ranks;
using torch::Tensor;

constexpr int parts = 7;

std::vector<NamedTensor> parameters() {
  return {{"a", torch::ones({5, 3}, torch::kFloat32).set_requires_grad(true)},
          {"b", torch::ones({4}, torch::kFloat64).set_requires_grad(true)},
          {"seldom", torch::ones({2}, torch::kFloat32).set_requires_grad(true)},
          {"never", torch::ones({2}, torch::kFloat32).set_requires_grad(true)}};
}

/// What a part's backward leaves, of all magnitudes.
void leave_gradients(const std::vector<NamedTensor>& all, int part) {
  const auto generator = at::detail::createCPUGenerator(static_cast<std::uint64_t>(part));
  const auto gradient = [&](const Tensor& like) {
    return torch::randn(like.sizes(), generator, like.scalar_type()) * std::pow(10.0, part % 4);
  };
  all[0].tensor.mutable_grad() = gradient(all[0].tensor);
  all[1].tensor.mutable_grad() = gradient(all[1].tensor);
  if (part == 4) all[2].tensor.mutable_grad() = gradient(all[2].tensor);
}

/// The averages on so many ranks, and the loss.
std::vector<Tensor> averages(int ranks) {
  std::vector<Tensor> result;
  std::mutex mutex;
  on_ranks(ranks, [&](const Group& group) {
    const auto mine = parameters();
    PartGradients gradients(mine, parts, false);
    for (int round = 0; round < 2; ++round) {
      const auto [first, last] = gradients.begin(group);
      for (int part = first; part < last; ++part) {
        leave_gradients(mine, part);
        gradients.add(part);
      }
      gradients.finish();
      EXPECT_EQ(gradients.take(), 3.0);  // the mean of 0 to 6
      EXPECT_FALSE(mine[3].tensor.grad().defined()) << "no part has used it";
    }
    const std::lock_guard lock(mutex);
    if (group.rank() == 0)
      result = {mine[0].tensor.grad().clone(), mine[1].tensor.grad().clone(), mine[2].tensor.grad().clone()};
  });
  return result;
}

TEST(PartGradients, AreAveragedToTheSameBitsOnAnyNumberOfRanks) {
  const auto alone = averages(1);
  const auto all = parameters();
  Tensor sum = torch::zeros({5, 3}, torch::kFloat64);
  for (int part = 0; part < parts; ++part) {
    leave_gradients(all, part);
    sum += all[0].tensor.grad().to(torch::kFloat64);
  }
  EXPECT_TRUE(torch::allclose(alone[0].to(torch::kFloat64), sum / parts, 1e-5));
  for (const int ranks : {2, 3, 7, 9}) {
    const auto shared = averages(ranks);
    for (std::size_t i = 0; i < alone.size(); ++i)
      EXPECT_TRUE(torch::equal(shared[i], alone[i])) << ranks << " " << i;
  }
}

TEST(PartGradients, NameTheFirstPartWithNumbersThatAreNone) {
  on_ranks(3, [&](const Group& group) {
    const auto mine = parameters();
    PartGradients gradients(mine, parts, true);
    for (const int bad : {parts, 4, 0}) {
      const auto [first, last] = gradients.begin(group);
      for (int part = first; part < last; ++part) {
        leave_gradients(mine, part);
        if (part >= bad) mine[1].tensor.mutable_grad()[2] = std::numeric_limits<double>::infinity();
        gradients.add(0);
      }
      gradients.finish();
      if (bad == parts) {
        EXPECT_FALSE(gradients.non_finite().has_value());
        continue;
      }
      ASSERT_TRUE(gradients.non_finite().has_value());
      EXPECT_EQ(gradients.non_finite()->part, bad);
      EXPECT_EQ(gradients.non_finite()->rank, bad == 4 ? 1 : 0);  // 3, 2 and 2 parts
      EXPECT_EQ(gradients.non_finite()->parameter, "b");
    }
  });
}

TEST(PartGradients, ThatAreDroppedLeaveNothing) {
  const auto mine = parameters();
  PartGradients gradients(mine, 1, false);
  (void)gradients.begin(Group());
  leave_gradients(mine, 0);
  gradients.add(1);
  leave_gradients(mine, 1);
  gradients.drop();
  for (const NamedTensor& item : mine) EXPECT_FALSE(item.tensor.grad().defined());
  (void)gradients.begin(Group());
  leave_gradients(mine, 0);
  const Tensor kept = mine[0].tensor.grad().clone();
  gradients.add(2);
  gradients.finish();
  gradients.release();
  EXPECT_EQ(gradients.take(), 2.0);
  EXPECT_TRUE(torch::equal(mine[0].tensor.grad(), kept));
}

}  // namespace
}  // namespace lockstep
