#include "lockstep/base/half.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace lockstep {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();

TEST(Bfloat16, KeepsEveryValueThroughF32AndBack) {
  for (std::uint32_t bits = 0; bits <= 0xffff; ++bits) {
    const bfloat16 value{static_cast<std::uint16_t>(bits)};
    if (std::isnan(to_float(value))) {
      EXPECT_TRUE(std::isnan(to_float(to_bfloat16(to_float(value)))));
    } else {
      ASSERT_EQ(to_bfloat16(to_float(value)), value) << bits;
    }
  }
}

TEST(Float16, KeepsEveryValueThroughF32AndBack) {
  for (std::uint32_t bits = 0; bits <= 0xffff; ++bits) {
    const float16 value{static_cast<std::uint16_t>(bits)};
    if (std::isnan(to_float(value))) {
      EXPECT_TRUE(std::isnan(to_float(to_float16(to_float(value)))));
    } else {
      ASSERT_EQ(to_float16(to_float(value)), value) << bits;
    }
  }
}

TEST(Bfloat16, RoundsToNearestAndTiesToEven) {
  EXPECT_EQ(to_float(to_bfloat16(1.0F + 0x1p-8F)), 1.0F);               // a tie, down to even
  EXPECT_EQ(to_float(to_bfloat16(1.0F + 0x1.8p-7F)), 1.0F + 0x1p-6F);   // a tie, up to even
  EXPECT_EQ(to_float(to_bfloat16(1.0F + 0x1.01p-8F)), 1.0F + 0x1p-7F);  // just above
  EXPECT_EQ(to_float(to_bfloat16(std::numeric_limits<float>::max())), infinity);
  EXPECT_EQ(to_bfloat16(-0.0F).bits, 0x8000);
}

TEST(Float16, RoundsToNearestAndTiesToEven) {
  EXPECT_EQ(to_float(to_float16(1.0F + 0x1p-11F)), 1.0F);
  EXPECT_EQ(to_float(to_float16(1.0F + 0x1.8p-10F)), 1.0F + 0x1p-9F);
  EXPECT_EQ(to_float(to_float16(65519.0F)), 65504.0F);
  EXPECT_EQ(to_float(to_float16(65520.0F)), infinity);
  EXPECT_EQ(to_float(to_float16(0x1p-25F)), 0.0F);  // half the smallest, a tie to zero
  EXPECT_EQ(to_float(to_float16(0x1.8p-25F)), 0x1p-24F);
  EXPECT_EQ(to_float(to_float16(0x1.ff8p-15F)), 0x1.ff8p-15F);  // the largest subnormal is exact
  EXPECT_EQ(to_float16(-infinity).bits, 0xfc00);
}

TEST(Float16, AgreesWithTheLibraryOnManyValues) {
  for (std::uint64_t bits = 0; bits < (1ULL << 32); bits += 65521) {
    const float value = std::bit_cast<float>(static_cast<std::uint32_t>(bits));
    if (std::isnan(value)) continue;
    const auto expected = static_cast<_Float16>(value);
    ASSERT_EQ(to_float16(value).bits, std::bit_cast<std::uint16_t>(expected)) << value;
  }
}

TEST(Halves, KeepNotANumber) {
  EXPECT_TRUE(std::isnan(to_float(to_bfloat16(std::nanf("")))));
  EXPECT_TRUE(std::isnan(to_float(to_float16(std::nanf("")))));
  const float quiet_bits_lost =
      std::bit_cast<float>(0x7f800001U);  // all its payload lies in the bits that go
  EXPECT_TRUE(std::isnan(to_float(to_bfloat16(quiet_bits_lost))));
  EXPECT_TRUE(std::isnan(to_float(to_float16(quiet_bits_lost))));
}

}  // namespace
}  // namespace lockstep
