// How an element lies in memory, and in which lanes it is computed: what reduce.cpp and update.cpp are
// written in terms of. Included by them once for each of Highway's targets, and by nobody else.
#include <cstddef>
#include <cstdint>

#include "hwy/highway.h"

// Highway's own way to include a file once for each target, instead of #pragma once.
#if defined(LOCKSTEP_KERNEL_CODECS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef LOCKSTEP_KERNEL_CODECS_INL_H
#undef LOCKSTEP_KERNEL_CODECS_INL_H
#else
#define LOCKSTEP_KERNEL_CODECS_INL_H
#endif

HWY_BEFORE_NAMESPACE();
namespace lockstep::kernel::HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

template <class T>
struct Plain {
  using Lane = T;
  static constexpr std::size_t bytes = sizeof(T);

  template <class D>
  static HWY_INLINE hn::Vec<D> load(D d, const std::byte* from) {
    return hn::LoadU(d, reinterpret_cast<const T*>(from));
  }
  template <class D>
  static HWY_INLINE void store(D d, hn::Vec<D> value, std::byte* to) {
    hn::StoreU(value, d, reinterpret_cast<T*>(to));
  }
};

// Bytes in lanes of 16 bits, where there is a multiplication. What goes past 8 bits is left out at the end:
// that is where a product of bytes wraps.
struct WideBytes {
  using Lane = std::uint16_t;
  static constexpr std::size_t bytes = 1;

  template <class D>
  static HWY_INLINE hn::Vec<D> load(D d, const std::byte* from) {
    const hn::Rebind<std::uint8_t, D> d8;
    return hn::PromoteTo(d, hn::LoadU(d8, reinterpret_cast<const std::uint8_t*>(from)));
  }
  template <class D>
  static HWY_INLINE void store(D, hn::Vec<D> value, std::byte* to) {
    const hn::Rebind<std::uint8_t, D> d8;
    hn::StoreU(hn::TruncateTo(d8, value), d8, reinterpret_cast<std::uint8_t*>(to));
  }
};

// The two conversions that a half has to define are between lanes of u32: its bits, and those of an f32.
template <class Format>
struct Half {
  using Lane = float;
  static constexpr std::size_t bytes = 2;

  template <class D>
  static HWY_INLINE hn::Vec<D> load(D d, const std::byte* from) {
    const hn::Rebind<std::uint16_t, D> d16;
    return Format::widen(d, hn::LoadU(d16, reinterpret_cast<const std::uint16_t*>(from)));
  }
  template <class D>
  static HWY_INLINE void store(D d, hn::Vec<D> value, std::byte* to) {
    const hn::Rebind<std::uint16_t, D> d16;
    hn::StoreU(Format::narrow(d, value), d16, reinterpret_cast<std::uint16_t*>(to));
  }
};

// to_float and to_bfloat16 of base/half.h, on vectors.
struct BFloat16 {
  template <class D, class V16>
  static HWY_INLINE hn::Vec<D> widen(D d, V16 value) {
    return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(hn::RebindToUnsigned<D>{}, value)));
  }
  template <class D>
  static HWY_INLINE auto narrow(D, hn::Vec<D> value) {
    const hn::RebindToUnsigned<D> du;
    const auto bits = hn::BitCast(du, value);
    const auto upper = hn::ShiftRight<16>(bits);
    const auto half = hn::Add(hn::Set(du, 0x7fff), hn::And(upper, hn::Set(du, 1)));
    const auto rounded = hn::ShiftRight<16>(hn::Add(bits, half));
    const auto quiet = hn::Or(upper, hn::Set(du, 0x40));
    const auto result = hn::IfThenElse(hn::RebindMask(du, hn::IsNaN(value)), quiet, rounded);
    return hn::TruncateTo(hn::Rebind<std::uint16_t, D>{}, result);
  }
};

#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2
// The processor's own conversions: nearest even, subnormals and NaN as in base/half.h.
struct Float16 {
  template <class D, class V16>
  static HWY_INLINE hn::Vec<D> widen(D d, V16 value) {
    return hn::PromoteTo(d, hn::BitCast(hn::Rebind<hwy::float16_t, D>{}, value));
  }
  template <class D>
  static HWY_INLINE auto narrow(D, hn::Vec<D> value) {
    return hn::BitCast(hn::Rebind<std::uint16_t, D>{}, hn::DemoteTo(hn::Rebind<hwy::float16_t, D>{}, value));
  }
};
#else
// to_float and to_float16 of base/half.h, on vectors. Highway's own ones round otherwise.
struct Float16 {
  template <class D, class V16>
  static HWY_INLINE hn::Vec<D> widen(D d, V16 value) {
    const hn::RebindToUnsigned<D> du;
    const auto bits = hn::PromoteTo(du, value);
    const auto magnitude = hn::And(bits, hn::Set(du, 0x7fff));
    const auto sign = hn::ShiftLeft<16>(hn::Xor(bits, magnitude));
    const auto shifted = hn::ShiftLeft<13>(magnitude);
    const auto integer = hn::ConvertTo(d, hn::BitCast(hn::RebindToSigned<D>{}, magnitude));
    const auto subnormal = hn::BitCast(du, hn::Mul(integer, hn::Set(d, 0x1p-24F)));
    const auto normal = hn::Add(shifted, hn::Set(du, 112U << 23));
    const auto special = hn::Or(shifted, hn::Set(du, 0x7f800000U));
    const auto finite = hn::IfThenElse(hn::Lt(magnitude, hn::Set(du, 0x400)), subnormal, normal);
    return hn::BitCast(d,
                       hn::Or(sign, hn::IfThenElse(hn::Lt(magnitude, hn::Set(du, 0x7c00)), finite, special)));
  }
  template <class D>
  static HWY_INLINE auto narrow(D d, hn::Vec<D> value) {
    const hn::RebindToUnsigned<D> du;
    const auto bits = hn::BitCast(du, value);
    const auto magnitude = hn::And(bits, hn::Set(du, 0x7fffffffU));
    const auto sign = hn::ShiftRight<16>(hn::Xor(bits, magnitude));
    const auto odd = hn::And(hn::ShiftRight<13>(magnitude), hn::Set(du, 1));
    const auto rebased = hn::Sub(magnitude, hn::Set(du, 0x38000000U - 0xfffU));
    const auto normal = hn::ShiftRight<13>(hn::Add(rebased, odd));
    const auto aligned = hn::BitCast(du, hn::Add(hn::BitCast(d, magnitude), hn::Set(d, 0.5F)));
    const auto subnormal = hn::Sub(aligned, hn::Set(du, 0x3f000000U));
    const auto payload = hn::And(hn::ShiftRight<13>(magnitude), hn::Set(du, 0x1ff));
    const auto nan = hn::Or(payload, hn::Set(du, 0x7e00));
    const auto infinite_or_nan =
        hn::IfThenElse(hn::RebindMask(du, hn::IsNaN(value)), nan, hn::Set(du, 0x7c00));
    const auto finite = hn::IfThenElse(hn::Lt(magnitude, hn::Set(du, 0x38800000U)), subnormal, normal);
    const auto fits = hn::Lt(magnitude, hn::Set(du, 0x47800000U));
    const auto result = hn::Or(sign, hn::IfThenElse(fits, finite, infinite_or_nan));
    return hn::TruncateTo(hn::Rebind<std::uint16_t, D>{}, result);
  }
};
#endif

}  // namespace
}  // namespace lockstep::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
