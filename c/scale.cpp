#include "c/scale.h"

#include <complex>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "lockstep/base/half.h"

namespace lockstep::c {
namespace {

template <class T>
void scale_as(std::span<std::byte> elements, double factor) {
  for (std::size_t at = 0; at + sizeof(T) <= elements.size(); at += sizeof(T)) {
    T value{};
    std::memcpy(&value, elements.data() + at, sizeof(T));
    if constexpr (std::is_same_v<T, std::complex<float>> || std::is_same_v<T, std::complex<double>>) {
      value *= static_cast<typename T::value_type>(factor);
    } else if constexpr (std::is_arithmetic_v<T>) {
      value = static_cast<T>(static_cast<double>(value) * factor);
    } else if constexpr (std::is_same_v<T, float16>) {
      value = to_float16(static_cast<float>(to_float(value) * factor));
    } else {
      value = to_bfloat16(static_cast<float>(to_float(value) * factor));
    }
    std::memcpy(elements.data() + at, &value, sizeof(T));
  }
}

}  // namespace

bool scales_in_f32(Dtype dtype) {
  return dtype == Dtype::f32 || dtype == Dtype::f16 || dtype == Dtype::bf16 || dtype == Dtype::complex64;
}

void scale(Dtype dtype, std::span<std::byte> elements, double factor) {
  switch (dtype) {
    case Dtype::u8: return scale_as<std::uint8_t>(elements, factor);
    case Dtype::i8: return scale_as<std::int8_t>(elements, factor);
    case Dtype::u16: return scale_as<std::uint16_t>(elements, factor);
    case Dtype::i16: return scale_as<std::int16_t>(elements, factor);
    case Dtype::u32: return scale_as<std::uint32_t>(elements, factor);
    case Dtype::i32: return scale_as<std::int32_t>(elements, factor);
    case Dtype::u64: return scale_as<std::uint64_t>(elements, factor);
    case Dtype::i64: return scale_as<std::int64_t>(elements, factor);
    case Dtype::f16: return scale_as<float16>(elements, factor);
    case Dtype::bf16: return scale_as<bfloat16>(elements, factor);
    case Dtype::f32: return scale_as<float>(elements, factor);
    case Dtype::f64: return scale_as<double>(elements, factor);
    case Dtype::complex64: return scale_as<std::complex<float>>(elements, factor);
    case Dtype::complex128: return scale_as<std::complex<double>>(elements, factor);
    case Dtype::boolean: return;
  }
}

}  // namespace lockstep::c
