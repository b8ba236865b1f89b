// Element types that collectives reduce, as a value (inside the library and on the wire) and as a concept (at
// the user's edge). Both name the same closed set.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>

#include "lockstep/base/half.h"

namespace lockstep {

/// The numbers are part of the wire format (docs/wire_formats.md): never reuse one.
enum class Dtype : std::uint8_t { u8 = 0, i32 = 1, i64 = 2, f16 = 3, bf16 = 4, f32 = 5, f64 = 6 };

inline constexpr Dtype all_dtypes[] = {Dtype::u8,   Dtype::i32, Dtype::i64, Dtype::f16,
                                       Dtype::bf16, Dtype::f32, Dtype::f64};

constexpr std::size_t size_of(Dtype dtype) {
  switch (dtype) {
    case Dtype::u8: return 1;
    case Dtype::f16:
    case Dtype::bf16: return 2;
    case Dtype::i32:
    case Dtype::f32: return 4;
    case Dtype::i64:
    case Dtype::f64: return 8;
  }
  return 0;  // a number that came from elsewhere and is no Dtype
}

constexpr std::string_view to_string(Dtype dtype) {
  switch (dtype) {
    case Dtype::u8: return "u8";
    case Dtype::i32: return "i32";
    case Dtype::i64: return "i64";
    case Dtype::f16: return "f16";
    case Dtype::bf16: return "bf16";
    case Dtype::f32: return "f32";
    case Dtype::f64: return "f64";
  }
  return "?";
}

template <class T>
consteval Dtype dtype_or_fail() {
  using U = std::remove_cv_t<T>;
  if constexpr (std::same_as<U, float>)
    return Dtype::f32;
  else if constexpr (std::same_as<U, double>)
    return Dtype::f64;
  else if constexpr (std::same_as<U, bfloat16>)
    return Dtype::bf16;
  else if constexpr (std::same_as<U, float16>)
    return Dtype::f16;
  else if constexpr (std::integral<U> && std::is_signed_v<U> && sizeof(U) == 4)
    return Dtype::i32;
  else if constexpr (std::integral<U> && std::is_signed_v<U> && sizeof(U) == 8)
    return Dtype::i64;
  else
    return Dtype::u8;
}

/// Types that can be reduced: float, double, bfloat16, float16, and signed integers of 32 and 64 bits.
template <class T>
concept Element = std::is_trivially_copyable_v<T> && dtype_or_fail<T>()
!= Dtype::u8;

/// Types that can be moved (broadcast, all_gather, send, recv): anything that is its bytes.
template <class T>
concept Movable = std::is_trivially_copyable_v<T>;

template <Element T>
inline constexpr Dtype dtype_of = dtype_or_fail<T>();

}  // namespace lockstep
