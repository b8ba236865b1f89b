// Sixteen-bit floating-point numbers as storage types: bits and exact conversions, no arithmetic. Arithmetic
// happens in f32 (see kernel/reduce.h), with one rounding to nearest even on the way back.
#pragma once

#include <bit>
#include <cstdint>

namespace lockstep {

/// bfloat16: the upper half of an IEEE-754 binary32.
struct bfloat16 {
  std::uint16_t bits = 0;
  friend bool operator==(bfloat16, bfloat16) = default;  // compares bits, so that tests can compare ranks
};

/// IEEE-754 binary16.
struct float16 {
  std::uint16_t bits = 0;
  friend bool operator==(float16, float16) = default;
};

constexpr float to_float(bfloat16 value) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(value.bits) << 16);
}

/// Rounds to nearest even; NaN stays NaN (made quiet, sign kept), overflow becomes infinity.
constexpr bfloat16 to_bfloat16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffffU) > 0x7f800000U) return {static_cast<std::uint16_t>((bits >> 16) | 0x0040U)};
  const std::uint32_t rounded = bits + 0x7fffU + ((bits >> 16) & 1U);
  return {static_cast<std::uint16_t>(rounded >> 16)};
}

constexpr float to_float(float16 value) {
  const std::uint32_t sign = static_cast<std::uint32_t>(value.bits & 0x8000U) << 16;
  const std::uint32_t exponent = (value.bits >> 10) & 0x1fU;
  const std::uint32_t mantissa = value.bits & 0x3ffU;
  if (exponent == 0x1f) return std::bit_cast<float>(sign | 0x7f800000U | (mantissa << 13));
  if (exponent != 0) return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
  const float magnitude = static_cast<float>(mantissa) * 0x1p-24F;  // subnormal: exact in binary32
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(magnitude) | sign);
}

/// Rounds to nearest even; NaN stays NaN (made quiet, sign kept), overflow becomes infinity.
constexpr float16 to_float16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint16_t>((bits >> 16) & 0x8000U);
  const std::uint32_t magnitude = bits & 0x7fffffffU;
  if (magnitude > 0x7f800000U) {
    return {static_cast<std::uint16_t>(sign | 0x7e00U | ((magnitude >> 13) & 0x1ffU))};
  }
  if (magnitude >= 0x47800000U) return {static_cast<std::uint16_t>(sign | 0x7c00U)};  // 2^16 and above
  if (magnitude < 0x38800000U) {  // below 2^-14: subnormal
    // Adding 0.5 aligns the last kept bit (2^-24) with binary32's last bit, so the addition does the
    // rounding.
    const float aligned = std::bit_cast<float>(magnitude) + 0.5F;
    return {static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(aligned) - 0x3f000000U))};
  }
  const std::uint32_t rounded = magnitude - 0x38000000U + 0xfffU + ((magnitude >> 13) & 1U);
  return {
      static_cast<std::uint16_t>(sign | (rounded >> 13))};  // a carry past the largest number gives infinity
}

}  // namespace lockstep
