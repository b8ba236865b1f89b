// What reduce() is compared with: a scalar loop that folds from left to right, one element at a time. And
// what its tests share: numbers to reduce, every vector unit to do it on, and a comparison of bits.
#pragma once

#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <array>
#include <bit>
#include <cmath>
#include <complex>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include "lockstep/kernel/reduce.h"

namespace lockstep::test {

/// bool, in a type of which a std::vector is an array.
enum class Truth : bool { no, yes };

template <class T>
constexpr Dtype dtype_of_test = dtype_of<T>;
template <>
inline constexpr Dtype dtype_of_test<Truth> = dtype_of<bool>;

using AllElements = testing::Types<float, double, bfloat16, float16, std::complex<float>,
                                   std::complex<double>, Truth, std::uint8_t, std::uint16_t, std::uint32_t,
                                   std::uint64_t, std::int8_t, std::int16_t, std::int32_t, std::int64_t>;
using Floats = testing::Types<float, double, bfloat16, float16>;
using Integers = testing::Types<std::uint8_t, std::uint16_t, std::uint32_t, std::uint64_t, std::int8_t,
                                std::int16_t, std::int32_t, std::int64_t>;

struct DtypeName {
  template <class T>
  static std::string GetName(int) {
    return std::string(to_string(dtype_of_test<T>));
  }
};

template <class T>
constexpr bool is_complex = std::is_same_v<T, std::complex<float>> || std::is_same_v<T, std::complex<double>>;
template <class T>
constexpr bool is_whole = std::is_integral_v<T> || std::is_same_v<T, Truth>;

template <class T>
auto widened(T value) {
  if constexpr (is_half(dtype_of_test<T>)) {
    return to_float(value);
  } else {
    return value;
  }
}

template <class T, class Wide>
T narrowed(Wide value) {
  if constexpr (std::is_same_v<T, bfloat16>) {
    return to_bfloat16(value);
  } else if constexpr (std::is_same_v<T, float16>) {
    return to_float16(value);
  } else {
    return value;
  }
}

/// What an element is computed in.
template <class T>
using Wide = decltype(widened(T{}));

// ---- the reference

template <class T>
T combined_integers(ReduceOp op, T a, T b) {
  const auto bits_a = static_cast<std::uint64_t>(a);
  const auto bits_b = static_cast<std::uint64_t>(b);
  switch (op) {
    case ReduceOp::sum: return static_cast<T>(bits_a + bits_b);
    case ReduceOp::product: return static_cast<T>(bits_a * bits_b);
    case ReduceOp::band: return static_cast<T>(bits_a & bits_b);
    case ReduceOp::bor: return static_cast<T>(bits_a | bits_b);
    case ReduceOp::bxor: return static_cast<T>(bits_a ^ bits_b);
    case ReduceOp::min: return a < b ? a : b;
    default: return b < a ? a : b;
  }
}

inline bool combined_bools(ReduceOp op, bool a, bool b) {
  switch (op) {
    case ReduceOp::product:
    case ReduceOp::min:
    case ReduceOp::band: return a && b;
    case ReduceOp::bxor: return a != b;
    default: return a || b;
  }
}

template <class W>
W combined_floats(ReduceOp op, W a, W b) {
  if (op == ReduceOp::sum || op == ReduceOp::average) return a + b;
  if (op == ReduceOp::product) return a * b;
  if (std::isnan(a)) return a;
  if (op == ReduceOp::min) return a < b ? a : b;
  return b < a ? a : b;
}

template <class W>
W combined(ReduceOp op, W a, W b) {
  if constexpr (std::is_same_v<W, Truth>) {
    return static_cast<Truth>(combined_bools(op, a == Truth::yes, b == Truth::yes));
  } else if constexpr (std::is_integral_v<W>) {
    return combined_integers(op, a, b);
  } else if constexpr (is_complex<W>) {
    return a + b;
  } else {
    return combined_floats(op, a, b);
  }
}

template <class W>
W scaled(W value, double factor) {
  if constexpr (is_complex<W>) {
    const auto part = static_cast<typename W::value_type>(factor);
    return {value.real() * part, value.imag() * part};
  } else if constexpr (is_whole<W>) {
    return value;
  } else {
    return value * static_cast<W>(factor);
  }
}

template <class T>
using Buffers = std::vector<std::vector<T>>;

template <class T>
std::vector<T> reference(ReduceOp op, const Buffers<T>& sources, double scale) {
  std::vector<T> result;
  for (std::size_t i = 0; i < sources[0].size(); ++i) {
    Wide<T> value = widened(sources[0][i]);
    for (std::size_t s = 1; s < sources.size(); ++s) value = combined(op, value, widened(sources[s][i]));
    result.push_back(narrowed<T>(scaled(value, scale)));
  }
  return result;
}

// ---- comparison

/// A NaN is the same as any other: its payload is nobody's promise.
template <class T>
bool same(T a, T b) {
  if constexpr (is_complex<T>) {
    return same(a.real(), b.real()) && same(a.imag(), b.imag());
  } else {
    using Bytes = std::array<std::byte, sizeof(T)>;
    if (std::bit_cast<Bytes>(a) == std::bit_cast<Bytes>(b)) return true;
    if constexpr (!is_whole<T>) return std::isnan(widened(a)) && std::isnan(widened(b));
    return false;
  }
}

template <class T>
testing::AssertionResult same(const T* actual, const T* expected, std::size_t elements) {
  if (elements == 0 || std::memcmp(actual, expected, elements * sizeof(T)) == 0)
    return testing::AssertionSuccess();
  for (std::size_t i = 0; i < elements; ++i) {
    if (!same(actual[i], expected[i])) {
      return testing::AssertionFailure()
             << "element " << i << " of " << elements << " is " << testing::PrintToString(widened(actual[i]))
             << ", not " << testing::PrintToString(widened(expected[i]));
    }
  }
  return testing::AssertionSuccess();
}

template <class T>
testing::AssertionResult same(const std::vector<T>& actual, const std::vector<T>& expected) {
  if (actual.size() != expected.size()) return testing::AssertionFailure() << "sizes differ";
  return same(actual.data(), expected.data(), actual.size());
}

// ---- calls

/// The result of reduce() on whole vectors, in a destination of its own.
template <class T>
std::vector<T> reduced(ReduceOp op, const Buffers<T>& sources, double scale = 1.0) {
  std::vector<const std::byte*> from;
  for (const std::vector<T>& source : sources)
    from.push_back(reinterpret_cast<const std::byte*>(source.data()));
  std::vector<T> result(sources[0].size());
  const std::array to = {reinterpret_cast<std::byte*>(result.data())};
  kernel::reduce(dtype_of_test<T>, op, result.size(), from, to, scale);
  return result;
}

template <class Test>
void on_every_target(const Test& test) {
  for (const std::int64_t target : hwy::SupportedAndGeneratedTargets()) {
    SCOPED_TRACE(hwy::TargetName(target));
    hwy::SetSupportedTargetsForTest(target);
    test();
    hwy::SetSupportedTargetsForTest(0);
    if (testing::Test::HasFatalFailure()) return;
  }
}

// ---- numbers

template <class T>
T any_float(std::mt19937_64& random) {
  const std::uint64_t bits = random();
  const std::uint64_t kind = random() % 64;
  using W = Wide<T>;
  using Limits = std::numeric_limits<W>;
  const W sign = (bits & 1) != 0 ? W{1} : W{-1};
  if (kind == 0) return narrowed<T>(sign * Limits::infinity());
  if (kind == 1) return narrowed<T>(sign * Limits::quiet_NaN());
  if (kind < 4) return narrowed<T>(sign * W{0});
  if (kind == 4) return narrowed<T>(sign * Limits::denorm_min());
  if (kind == 5) return narrowed<T>(sign * Limits::max());
  if (kind < 24) {
    std::array<std::byte, sizeof(T)> any;
    std::memcpy(any.data(), &bits, sizeof any);
    return std::bit_cast<T>(any);
  }
  return narrowed<T>(sign * std::ldexp(static_cast<W>(bits >> 40), static_cast<int>(kind % 16) - 28));
}

/// Mostly moderate numbers; any bits, zeros, the smallest and greatest, infinities and NaN among them.
template <class T>
T any_number(std::mt19937_64& random) {
  if constexpr (is_complex<T>) {
    const auto real = any_float<typename T::value_type>(random);
    return {real, any_float<typename T::value_type>(random)};
  } else if constexpr (std::is_same_v<T, Truth>) {
    return static_cast<Truth>(random() % 2 != 0);
  } else if constexpr (std::is_integral_v<T>) {
    const std::uint64_t bits = random();
    const std::uint64_t kind = random() % 64;
    if (kind == 0) return std::numeric_limits<T>::min();
    if (kind == 1) return std::numeric_limits<T>::max();
    return static_cast<T>(kind < 32 ? bits : bits % 1000);
  } else {
    return any_float<T>(random);
  }
}

template <class T>
Buffers<T> any_buffers(std::size_t count, std::size_t elements, unsigned seed) {
  std::mt19937_64 random(seed);
  Buffers<T> buffers(count, std::vector<T>(elements));
  for (std::vector<T>& buffer : buffers) {
    for (T& value : buffer) value = any_number<T>(random);
  }
  return buffers;
}

}  // namespace lockstep::test
