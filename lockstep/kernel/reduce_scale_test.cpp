// The factors of a reduction: that of the result, and that of the sources which are a rank's own
// contribution.
#include <gtest/gtest.h>

#include <array>
#include <span>
#include <vector>

#include "lockstep/kernel/reference_test.h"

namespace lockstep {
namespace {

using namespace test;

constexpr std::size_t most_ranks = 5;

/// Which sources are contributions: all, none, the first, the last, every other.
std::vector<std::array<bool, most_ranks>> patterns(std::size_t ranks) {
  std::vector<std::array<bool, most_ranks>> all(5);
  all[0].fill(true);
  all[2][0] = true;
  all[3][ranks - 1] = true;
  for (std::size_t s = 0; s < ranks; s += 2) all[4][s] = true;
  return all;
}

template <class T>
class ReduceScaled : public testing::Test {
 protected:
  void expect_reference(ReduceOp op, std::size_t ranks, const Scale& scale) {
    for (const std::size_t elements : {1U, 67U, 301U}) {
      const Buffers<T> inputs = any_buffers<T>(ranks, elements, static_cast<unsigned>(ranks));
      const std::vector<T> expected = reference(op, inputs, scale);
      on_every_target([&] {
        ASSERT_TRUE(same(reduced(op, inputs, scale), expected))
            << to_string(op) << " of " << ranks << " sources, result times " << scale.result
            << ", contributions times " << scale.contribution << ": "
            << testing::PrintToString(scale.is_contribution);
      });
    }
  }
};
using Scalable = testing::Types<float, double, bfloat16, float16, std::complex<float>, std::complex<double>>;
TYPED_TEST_SUITE(ReduceScaled, Scalable, DtypeName);

TYPED_TEST(ReduceScaled, GivesTheBitsOfAPlainLoop) {
  for (const ReduceOp op : all_reduce_ops) {
    if (!supports(dtype_of<TypeParam>, op)) continue;
    for (std::size_t ranks = 1; ranks <= most_ranks; ++ranks) {
      for (const double result : {1.0, 1.0 / 3.0}) {
        for (const double contribution : {1.0, 0.1, -7.0}) {
          this->expect_reference(op, ranks, {result, contribution, {}});
          for (const auto& pattern : patterns(ranks))
            this->expect_reference(op, ranks, {result, contribution, std::span(pattern).first(ranks)});
          if (this->HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST(ReduceScale, IsAppliedInThePrecisionOfTheAccumulator) {
  const double third = 1.0 / 3.0;
  EXPECT_EQ(reduced<double>(ReduceOp::average, {{1.0}, {1.0}, {2.0}}, {.result = third})[0], 4.0 * third);
  EXPECT_EQ(reduced<float>(ReduceOp::average, {{1.0F}, {1.0F}, {2.0F}}, {.result = third})[0],
            4.0F * static_cast<float>(third));
}

TEST(ReduceScale, OfAContributionComesBeforeTheOperation) {
  EXPECT_EQ(reduced<float>(ReduceOp::product, {{2.0F}, {6.0F}}, {.contribution = 0.5})[0], 3.0F);
  EXPECT_EQ(reduced<float>(ReduceOp::max, {{2.0F}, {3.0F}}, {.contribution = -1.0})[0], -2.0F);
}

TEST(ReduceScale, OfAContributionLeavesPartialResultsAlone) {
  const std::array second = {false, true};
  const Scale half = {.contribution = 0.5, .is_contribution = second};
  EXPECT_EQ(reduced<float>(ReduceOp::sum, {{8.0F}, {4.0F}}, half)[0], 10.0F);
  EXPECT_EQ(reduced<float>(ReduceOp::min, {{3.0F}, {4.0F}}, half)[0], 2.0F);
}

// An f32 cannot hold the first factor, but it can hold their product.
TEST(ReduceScale, OfAllContributionsToASumIsOneFactorWithThatOfTheResult) {
  const Scale scale = {.result = 1e40, .contribution = 1e-40};
  EXPECT_EQ(reduced<float>(ReduceOp::sum, {{3.0F}, {4.0F}}, scale)[0], 7.0F);
  EXPECT_EQ(reduced<float>(ReduceOp::average, {{3.0F}, {4.0F}}, scale)[0], 7.0F);
}

TEST(ReduceScale, ThatIsOneInTheEndCopiesASingleSource) {
  const std::vector<float16> signalling(3, float16{0x7c01});
  const std::array no_contribution = {false};
  EXPECT_EQ(reduced<float16>(ReduceOp::sum, {signalling}, {.result = 2.0, .contribution = 0.5}), signalling);
  EXPECT_EQ(reduced<float16>(ReduceOp::max, {signalling},
                             {.contribution = 0.5, .is_contribution = no_contribution}),
            signalling);
}

}  // namespace
}  // namespace lockstep
