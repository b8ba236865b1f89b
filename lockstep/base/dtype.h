// Element types that collectives reduce, as a value (inside the library and on the wire) and as a concept (at
// the user's edge). Both name the same closed set.
#pragma once

#include <complex>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <type_traits>

#include "lockstep/base/half.h"

namespace lockstep {

/// The numbers are part of the wire format (docs/wire_formats.md): never reuse one. What is only moved goes
/// as u8, byte by byte.
enum class Dtype : std::uint8_t {
  u8 = 0,
  i32 = 1,
  i64 = 2,
  f16 = 3,
  bf16 = 4,
  f32 = 5,
  f64 = 6,
  i8 = 7,
  u16 = 8,
  i16 = 9,
  u32 = 10,
  u64 = 11,
  boolean = 12,     ///< a byte, 0 or 1
  complex64 = 13,   ///< two f32: the real and the imaginary part
  complex128 = 14,  ///< two f64
};

inline constexpr Dtype all_dtypes[] = {Dtype::u8,      Dtype::i32,       Dtype::i64,       Dtype::f16,
                                       Dtype::bf16,    Dtype::f32,       Dtype::f64,       Dtype::i8,
                                       Dtype::u16,     Dtype::i16,       Dtype::u32,       Dtype::u64,
                                       Dtype::boolean, Dtype::complex64, Dtype::complex128};

constexpr std::size_t size_of(Dtype dtype) {
  switch (dtype) {
    case Dtype::u8:
    case Dtype::i8:
    case Dtype::boolean: return 1;
    case Dtype::u16:
    case Dtype::i16:
    case Dtype::f16:
    case Dtype::bf16: return 2;
    case Dtype::u32:
    case Dtype::i32:
    case Dtype::f32: return 4;
    case Dtype::u64:
    case Dtype::i64:
    case Dtype::f64:
    case Dtype::complex64: return 8;
    case Dtype::complex128: return 16;
  }
  return 0;  // a number that came from elsewhere and is no Dtype
}

constexpr bool is_half(Dtype dtype) { return dtype == Dtype::f16 || dtype == Dtype::bf16; }

/// What the address of an element is a multiple of: its size, but for a complex number that of its parts.
constexpr std::size_t alignment_of(Dtype dtype) {
  const bool has_parts = dtype == Dtype::complex64 || dtype == Dtype::complex128;
  return has_parts ? size_of(dtype) / 2 : size_of(dtype);
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
    case Dtype::i8: return "i8";
    case Dtype::u16: return "u16";
    case Dtype::i16: return "i16";
    case Dtype::u32: return "u32";
    case Dtype::u64: return "u64";
    case Dtype::boolean: return "bool";
    case Dtype::complex64: return "complex64";
    case Dtype::complex128: return "complex128";
  }
  return "?";
}

/// The integer type of this size; nullopt where there is none (128 bits).
consteval std::optional<Dtype> integer_dtype(std::size_t bytes, bool is_signed) {
  switch (bytes) {
    case 1: return is_signed ? Dtype::i8 : Dtype::u8;
    case 2: return is_signed ? Dtype::i16 : Dtype::u16;
    case 4: return is_signed ? Dtype::i32 : Dtype::u32;
    case 8: return is_signed ? Dtype::i64 : Dtype::u64;
    default: return std::nullopt;
  }
}

/// nullopt for what is no Element.
template <class T>
consteval std::optional<Dtype> find_dtype() {
  using U = std::remove_cv_t<T>;
  if constexpr (std::same_as<U, float>)
    return Dtype::f32;
  else if constexpr (std::same_as<U, double>)
    return Dtype::f64;
  else if constexpr (std::same_as<U, bfloat16>)
    return Dtype::bf16;
  else if constexpr (std::same_as<U, float16>)
    return Dtype::f16;
  else if constexpr (std::same_as<U, std::complex<float>>)
    return Dtype::complex64;
  else if constexpr (std::same_as<U, std::complex<double>>)
    return Dtype::complex128;
  else if constexpr (std::same_as<U, bool>)
    return Dtype::boolean;
  else if constexpr (std::integral<U>)
    return integer_dtype(sizeof(U), std::is_signed_v<U>);
  else
    return std::nullopt;
}

/// Types that can be reduced: float, double, bfloat16, float16, std::complex of float and double, bool, and
/// every integer type of 8 to 64 bits by its size and sign (so that char is what the compiler makes of it).
/// Not std::byte, which has no arithmetic, nor a structure or enumeration of the user's.
template <class T>
concept Element = find_dtype<T>()
.has_value();

/// Types that can be moved (broadcast, all_gather, send, recv): anything that is its bytes.
template <class T>
concept Movable = std::is_trivially_copyable_v<T>;

template <Element T>
inline constexpr Dtype dtype_of = find_dtype<T>().value();

}  // namespace lockstep
