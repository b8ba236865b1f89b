// What floating-point types promise beyond the bits of a plain loop: how halves are rounded, and what becomes
// of NaN and of signed zeros.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "lockstep/kernel/reference_test.h"

namespace lockstep::kernel {
namespace {

using namespace test;

constexpr std::array float_ops = {ReduceOp::sum, ReduceOp::product, ReduceOp::min, ReduceOp::max,
                                  ReduceOp::average};

// ---- halves

template <class T>
class ReduceHalves : public testing::Test {};
using HalfTypes = testing::Types<bfloat16, float16>;
TYPED_TEST_SUITE(ReduceHalves, HalfTypes, DtypeName);

TYPED_TEST(ReduceHalves, OfAllBitsConvertBothWaysUnchanged) {
  std::vector<TypeParam> all;
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) all.push_back({static_cast<std::uint16_t>(bits)});
  const std::vector<TypeParam> minus_zero(all.size(), TypeParam{0x8000});
  on_every_target([&] {
    const std::vector<TypeParam> result = reduced<TypeParam>(ReduceOp::sum, {all, minus_zero});
    for (std::size_t i = 0; i < all.size(); ++i) {
      const TypeParam expected =
          narrowed<TypeParam>(to_float(all[i]));  // makes a NaN quiet, else changes nothing
      ASSERT_EQ(result[i].bits, expected.bits) << "from bits " << i;
    }
  });
}

/// Numbers on, and one bit beside, the points where rounding to a half turns; with all signs and special
/// values.
std::vector<float> rounding_points() {
  std::vector<float> points;
  const auto add = [&](std::uint32_t bits) { points.push_back(std::bit_cast<float>(bits)); };
  for (std::uint32_t sign_and_exponent = 0; sign_and_exponent < 512; ++sign_and_exponent) {
    const std::uint32_t exponent = sign_and_exponent & 0xffU;
    if (exponent > 2 && exponent < 98 && exponent % 16 != 0)
      continue;  // neither half has anything special here
    if (exponent > 145 && exponent < 252 && exponent % 16 != 0) continue;
    for (std::uint32_t last_kept = 13; last_kept <= 23; ++last_kept) {  // above 13: subnormal f16; 16: bf16
      const std::uint32_t tie = 1U << (last_kept - 1);
      for (const std::uint32_t kept : {0U, 1U << last_kept, ~((1U << last_kept) - 1)}) {
        for (const std::uint32_t rest : {0U, 1U, tie - 1, tie, tie + 1}) {
          add((sign_and_exponent << 23) | ((kept | rest) & 0x7fffffU));
        }
      }
    }
  }
  return points;
}

TYPED_TEST(ReduceHalves, AreRoundedToNearestEven) {
  const std::vector<float> points = rounding_points();
  constexpr std::size_t elements = 17;  // a vector of any target and a tail
  const std::vector<TypeParam> ones(elements, narrowed<TypeParam>(1.0F));
  std::vector<TypeParam> result(elements);
  const std::array from = {reinterpret_cast<const std::byte*>(ones.data())};
  const std::array to = {reinterpret_cast<std::byte*>(result.data())};
  on_every_target([&] {
    for (const float point : points) {  // one times a scale is a way to have any f32 rounded
      reduce(dtype_of<TypeParam>, ReduceOp::sum, elements, from, to, static_cast<double>(point));
      const TypeParam expected = narrowed<TypeParam>(point);
      const bool all =
          std::all_of(result.begin(), result.end(), [&](TypeParam value) { return same(value, expected); });
      ASSERT_TRUE(all) << std::hexfloat << point << " becomes " << to_float(result[0]) << " or "
                       << to_float(result[elements - 1]) << ", not " << to_float(expected);
    }
  });
}

TYPED_TEST(ReduceHalves, AreAccumulatedInFullAndRoundedOnce) {
  const float first_gap = std::is_same_v<TypeParam, bfloat16> ? 256 : 2048;  // from here on, x + 1 is no half
  const auto twenty = [](float value) { return std::vector<TypeParam>(20, narrowed<TypeParam>(value)); };
  on_every_target([&] {
    EXPECT_TRUE(same(reduced<TypeParam>(ReduceOp::sum, {twenty(first_gap), twenty(1), twenty(1)}),
                     twenty(first_gap + 2)));
    EXPECT_TRUE(same(reduced<TypeParam>(ReduceOp::average, {twenty(first_gap), twenty(1), twenty(1)}, 0.5),
                     twenty(first_gap / 2 + 1)));
  });
}

// ---- NaN and zeros

template <class T>
class ReduceFloats : public testing::Test {};
TYPED_TEST_SUITE(ReduceFloats, Floats, DtypeName);

TYPED_TEST(ReduceFloats, KeepNaNWhicheverSourceHasIt) {
  using W = Wide<TypeParam>;
  const auto nan = narrowed<TypeParam>(std::numeric_limits<W>::quiet_NaN());
  constexpr std::size_t elements = 67;
  on_every_target([&] {
    for (const ReduceOp op : float_ops) {
      for (std::size_t ranks = 2; ranks <= 5; ++ranks) {
        for (std::size_t who = 0; who < ranks; ++who) {
          Buffers<TypeParam> sources(ranks, std::vector<TypeParam>(elements, narrowed<TypeParam>(W{1})));
          for (std::size_t i = 0; i < elements; i += 2) sources[who][i] = nan;
          const std::vector<TypeParam> result = reduced(op, sources);
          for (std::size_t i = 0; i < elements; ++i) {
            ASSERT_EQ(std::isnan(widened(result[i])), i % 2 == 0)
                << to_string(op) << ", NaN from source " << who << " of " << ranks << ", element " << i;
          }
        }
      }
    }
  });
}

TYPED_TEST(ReduceFloats, OfEqualZerosMinAndMaxKeepTheLast) {
  const std::vector<TypeParam> plus(35, narrowed<TypeParam>(Wide<TypeParam>{0}));
  const std::vector<TypeParam> minus(35, narrowed<TypeParam>(-Wide<TypeParam>{0}));
  on_every_target([&] {
    for (const ReduceOp op : {ReduceOp::min, ReduceOp::max}) {
      EXPECT_TRUE(std::signbit(widened(reduced<TypeParam>(op, {plus, minus})[0])));
      EXPECT_FALSE(std::signbit(widened(reduced<TypeParam>(op, {minus, plus})[0])));
      EXPECT_TRUE(std::signbit(widened(reduced<TypeParam>(op, {plus, minus})[34])));
      EXPECT_FALSE(std::signbit(widened(reduced<TypeParam>(op, {minus, plus})[34])));
    }
  });
}

}  // namespace
}  // namespace lockstep::kernel
