#include "lockstep/kernel/convert.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/kernel/reference_test.h"

namespace lockstep::kernel {
namespace {

using namespace test;

template <class T>
class Convert : public testing::Test {};
using HalfTypes = testing::Types<bfloat16, float16>;
TYPED_TEST_SUITE(Convert, HalfTypes, DtypeName);

template <class T>
std::vector<T> narrowed_all(const std::vector<float>& values) {
  std::vector<T> halves(values.size());
  narrow(dtype_of<T>, values.size(), reinterpret_cast<const std::byte*>(values.data()),
         reinterpret_cast<std::byte*>(halves.data()));
  return halves;
}

TYPED_TEST(Convert, WidensAllHalvesExactlyAndNarrowsThemBack) {
  std::vector<TypeParam> all;
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) all.push_back({static_cast<std::uint16_t>(bits)});
  on_every_target([&] {
    std::vector<float> wide(all.size());
    widen(dtype_of<TypeParam>, all.size(), reinterpret_cast<const std::byte*>(all.data()),
          reinterpret_cast<std::byte*>(wide.data()));
    const auto back = narrowed_all<TypeParam>(wide);
    for (std::size_t i = 0; i < all.size(); ++i) {
      const float expected = to_float(all[i]);
      ASSERT_TRUE(std::isnan(expected)
                      ? std::isnan(wide[i])
                      : std::bit_cast<std::uint32_t>(wide[i]) == std::bit_cast<std::uint32_t>(expected))
          << i;
      ASSERT_TRUE(std::isnan(expected) ? std::isnan(to_float(back[i])) : back[i].bits == all[i].bits) << i;
    }
  });
}

TYPED_TEST(Convert, RoundsAsReduceDoesAtEveryLength) {
  for (const std::size_t elements : {0UL, 1UL, 2UL, 15UL, 16UL, 17UL, 33UL, 1000UL}) {
    std::vector<float> values;
    for (std::size_t i = 0; i < elements; ++i)
      values.push_back(
          std::ldexp(1.0F + static_cast<float>(i) * 0x1.357p-12F, static_cast<int>(i % 300) - 150));
    on_every_target([&] {
      const auto halves = narrowed_all<TypeParam>(values);
      for (std::size_t i = 0; i < elements; ++i)
        ASSERT_EQ(halves[i].bits, narrowed<TypeParam>(values[i]).bits) << values[i];
    });
  }
}

TEST(ConvertHalves, RefusesWhatIsNoHalf) {
  EXPECT_THROW(narrow(Dtype::f32, 0, nullptr, nullptr), Error);
  EXPECT_THROW(widen(Dtype::u16, 0, nullptr, nullptr), Error);
}

}  // namespace
}  // namespace lockstep::kernel
