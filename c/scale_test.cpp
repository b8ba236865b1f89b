#include "c/scale.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <complex>
#include <cstdint>

namespace lockstep::c {
namespace {

using ::testing::ElementsAre;

template <class T, std::size_t n>
std::array<T, n> scaled(Dtype dtype, std::array<T, n> values, double factor) {
  scale(dtype, std::as_writable_bytes(std::span(values)), factor);
  return values;
}

TEST(Scale, CutsIntegersOffTowardsZero) {
  EXPECT_THAT(scaled(Dtype::i32, std::array<std::int32_t, 4>{7, -7, 1, 0}, 0.5), ElementsAre(3, -3, 0, 0));
  EXPECT_THAT(scaled(Dtype::u8, std::array<std::uint8_t, 2>{255, 3}, 1.0 / 3), ElementsAre(85, 1));
}

TEST(Scale, TakesF64ForIntegers) {
  const std::int64_t large = (std::int64_t{1} << 50) + 1;
  EXPECT_THAT(scaled(Dtype::i64, std::array<std::int64_t, 1>{large}, 2), ElementsAre(2 * large));
}

TEST(Scale, OfFloatingPointNumbers) {
  EXPECT_THAT(scaled(Dtype::f64, std::array{3.0, -1.0}, 1.0 / 3), ElementsAre(1.0, -1.0 / 3));
  EXPECT_EQ(to_float(scaled(Dtype::f16, std::array{to_float16(3)}, 0.5)[0]), 1.5F);
  EXPECT_EQ(to_float(scaled(Dtype::bf16, std::array{to_bfloat16(3)}, 0.5)[0]), 1.5F);
  EXPECT_THAT(scaled(Dtype::complex64, std::array{std::complex<float>(1, -2)}, 2),
              ElementsAre(std::complex<float>(2, -4)));
}

TEST(Scale, LeavesBoolsAlone) {
  EXPECT_THAT(scaled(Dtype::boolean, std::array<std::uint8_t, 2>{0, 1}, 0.5), ElementsAre(0, 1));
}

}  // namespace
}  // namespace lockstep::c
