// Adasum against its definition, written out in f64.
#include "lockstep/train/horovod/adasum.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ATen/CPUGeneratorImpl.h>

#include "lockstep/train/tensor/ranks_test.h"

namespace lockstep {
namespace {

using namespace test;
using ::testing::HasSubstr;

torch::Tensor vector_of(int rank, std::int64_t elements, torch::ScalarType type) {
  const auto random =
      at::make_generator<at::CPUGeneratorImpl>(static_cast<std::uint64_t>(100 * elements + rank));
  return torch::randn({elements}, random, torch::kDouble).to(type);
}

/// The definition.
torch::Tensor adasum_of(const torch::Tensor& a, const torch::Tensor& b) {
  const auto product = (a * b).sum();
  return (1 - product / (2 * (a * a).sum())) * a + (1 - product / (2 * (b * b).sum())) * b;
}

/// The tree of adasum.h over vectors in f64.
torch::Tensor in_a_tree(std::vector<torch::Tensor> vectors) {
  std::size_t paired = 1;
  while (2 * paired <= vectors.size()) paired *= 2;
  for (std::size_t rank = paired; rank < vectors.size(); ++rank)
    vectors[rank - paired] = adasum_of(vectors[rank - paired], vectors[rank]);
  for (std::size_t distance = 1; distance < paired; distance *= 2) {
    for (std::size_t rank = 0; rank < paired; rank += 2 * distance)
      vectors[rank] = adasum_of(vectors[rank], vectors[rank + distance]);
  }
  return vectors[0];
}

TEST(Adasum, IsItsDefinitionForEveryNumberOfRanks) {
  for (const int ranks : {1, 2, 3, 4, 5, 8}) {
    on_ranks(ranks, [&](const Group& group) {
      for (const auto& [type, bound] : {std::pair(torch::kDouble, 1e-12),
                                        {torch::kFloat, 1e-5},
                                        {torch::kHalf, 1e-2},
                                        {torch::kBFloat16, 5e-2}}) {
        std::vector<torch::Tensor> tensors;
        for (const std::int64_t elements : {1, 7, 1000})
          tensors.push_back(vector_of(group.rank(), elements, type));
        adasum(group, tensors);
        for (const auto& tensor : tensors) {
          std::vector<torch::Tensor> all;
          for (int rank = 0; rank < group.size(); ++rank)
            all.push_back(vector_of(rank, tensor.numel(), type).to(torch::kDouble));
          const auto expected = in_a_tree(all);
          const auto error = (tensor.to(torch::kDouble) - expected).norm() / expected.norm();
          EXPECT_LE(error.item<double>(), bound)
              << type << " x " << tensor.numel() << ", " << ranks << " ranks";
        }
      }
    });
  }
}

TEST(Adasum, AddsOrthogonalVectorsAndAveragesEqualOnes) {
  on_ranks(4, [](const Group& group) {
    auto orthogonal = torch::zeros({4});
    orthogonal[group.rank()] = group.rank() + 1;
    auto equal = torch::full({2, 2}, 3.0F);
    auto nothing = torch::zeros({3});
    adasum(group, {orthogonal, equal, nothing});
    EXPECT_TRUE(torch::equal(orthogonal, torch::tensor({1.0F, 2.0F, 3.0F, 4.0F})));
    EXPECT_TRUE(torch::allclose(equal, torch::full({2, 2}, 3.0F)));
    EXPECT_TRUE(torch::equal(nothing, torch::zeros({3})));
  });
}

TEST(Adasum, GivesAllRanksTheSameBits) {
  std::vector<torch::Tensor> results(5);
  on_ranks(5, [&](const Group& group) {
    auto mine = vector_of(group.rank(), 1000, torch::kFloat);
    adasum(group, {mine});
    results[static_cast<std::size_t>(group.rank())] = mine;
  });
  for (const auto& result : results) EXPECT_TRUE(same_bits(result, results[0]));
}

TEST(Adasum, RefusesIntegers) {
  try {
    adasum(Group(), {torch::ones({3}, torch::kInt64)});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::unsupported);
    EXPECT_THAT(error.what(), HasSubstr("a tensor is i64 [3]; only floating-point numbers have an Adasum"));
  }
}

}  // namespace
}  // namespace lockstep
