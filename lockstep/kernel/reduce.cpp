// Highway compiles this file once for each kind of vector unit and picks the best one at run time. To give
// the same bits everywhere, every target does the same elementary operations on the same elements in the same
// order: no horizontal sums, no fused multiply-add, own conversions of halves, and a tail of one-lane
// vectors.
#include "lockstep/kernel/reduce.h"

#include <array>
#include <cstdint>
#include <cstring>
#include <string>

#include "lockstep/base/error.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lockstep/kernel/reduce.cpp"
#include "hwy/foreach_target.h"  // includes this file again, once for each target
#include "hwy/highway.h"

#ifndef LOCKSTEP_KERNEL_REDUCE_CALL
#define LOCKSTEP_KERNEL_REDUCE_CALL
namespace lockstep {
namespace {
struct ReduceCall {
  std::size_t elements;
  std::span<const std::byte* const> sources;
  std::span<std::byte* const> destinations;
  double scale;
};
}  // namespace
}  // namespace lockstep
#endif

HWY_BEFORE_NAMESPACE();
namespace lockstep::HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

// A codec says how an element lies in memory and in which lanes it is computed.

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

struct Sum {
  template <class V>
  static HWY_INLINE V apply(V a, V b) {
    return hn::Add(a, b);
  }
};

struct Product {
  template <class V>
  static HWY_INLINE V apply(V a, V b) {
    return hn::Mul(a, b);
  }
};

// Comparisons instead of hn::Min and hn::Max, which treat NaN and signed zeros differently from target to
// target.
struct Min {
  template <class V>
  static HWY_INLINE V apply(V a, V b) {
    if constexpr (hwy::IsFloat<hn::TFromV<V>>()) {
      return hn::IfThenElse(hn::Or(hn::Lt(a, b), hn::IsNaN(a)), a, b);
    } else {
      return hn::Min(a, b);
    }
  }
};

struct Max {
  template <class V>
  static HWY_INLINE V apply(V a, V b) {
    if constexpr (hwy::IsFloat<hn::TFromV<V>>()) {
      return hn::IfThenElse(hn::Or(hn::Lt(b, a), hn::IsNaN(a)), a, b);
    } else {
      return hn::Max(a, b);
    }
  }
};

/// Lanes(d) elements from element `first` on: those of all sources, combined and scaled.
template <class Codec, class Op, class D>
HWY_INLINE hn::Vec<D> combined(D d, const ReduceCall& call, std::size_t first) {
  using Lane = hn::TFromD<D>;
  const std::size_t offset = first * Codec::bytes;
  auto result = Codec::load(d, call.sources[0] + offset);
  for (const std::byte* source : call.sources.subspan(1)) {
    result = Op::apply(result, Codec::load(d, source + offset));
  }
  if constexpr (hwy::IsFloat<Lane>()) result = hn::Mul(result, hn::Set(d, static_cast<Lane>(call.scale)));
  return result;
}

// Everything of a block is read before any of it is written: a destination may be a source.
template <class Codec, class Op, class D>
HWY_INLINE void reduce_vector(D d, const ReduceCall& call, std::size_t first) {
  const auto result = combined<Codec, Op>(d, call, first);
  for (std::byte* destination : call.destinations)
    Codec::store(d, result, destination + first * Codec::bytes);
}

template <class Codec, class Op, class D>
HWY_INLINE void reduce_four_vectors(D d, const ReduceCall& call, std::size_t first) {
  const std::size_t lanes = hn::Lanes(d);
  const auto result0 = combined<Codec, Op>(d, call, first);
  const auto result1 = combined<Codec, Op>(d, call, first + lanes);
  const auto result2 = combined<Codec, Op>(d, call, first + 2 * lanes);
  const auto result3 = combined<Codec, Op>(d, call, first + 3 * lanes);
  for (std::byte* destination : call.destinations) {
    std::byte* to = destination + first * Codec::bytes;
    Codec::store(d, result0, to);
    Codec::store(d, result1, to + lanes * Codec::bytes);
    Codec::store(d, result2, to + 2 * lanes * Codec::bytes);
    Codec::store(d, result3, to + 3 * lanes * Codec::bytes);
  }
}

// One loop serves any number of sources and destinations: versions with 2, 3 and 4 sources fixed at compile
// time measured the same (benchmarks/reduce_bench.cpp) and tripled the code.
template <class Codec, class Op>
void reduce_by(const ReduceCall& callers) {
  const ReduceCall call = callers;  // our own: a store to a destination cannot change it
  const hn::ScalableTag<typename Codec::Lane> d;
  const std::size_t lanes = hn::Lanes(d);
  std::size_t i = 0;
  for (; call.elements - i >= 4 * lanes; i += 4 * lanes) reduce_four_vectors<Codec, Op>(d, call, i);
  for (; call.elements - i >= lanes; i += lanes) reduce_vector<Codec, Op>(d, call, i);
  for (; i < call.elements; ++i) reduce_vector<Codec, Op>(hn::CappedTag<typename Codec::Lane, 1>{}, call, i);
}

using Kernel = void (*)(const ReduceCall&);

// Sums and products of integers are those of unsigned ones: they wrap.
template <class Codec, class Unsigned = Codec>
constexpr std::array<Kernel, 4> kernels = {reduce_by<Unsigned, Sum>, reduce_by<Unsigned, Product>,
                                           reduce_by<Codec, Min>, reduce_by<Codec, Max>};

void reduce_on_target(Dtype dtype, ReduceOp op, const ReduceCall& call) {
  const std::size_t index = op == ReduceOp::average ? 0 : static_cast<std::size_t>(op);
  switch (dtype) {
    case Dtype::u8: return;
    case Dtype::i32: return kernels<Plain<std::int32_t>, Plain<std::uint32_t>>[index](call);
    case Dtype::i64: return kernels<Plain<std::int64_t>, Plain<std::uint64_t>>[index](call);
    case Dtype::f16: return kernels<Half<Float16>>[index](call);
    case Dtype::bf16: return kernels<Half<BFloat16>>[index](call);
    case Dtype::f32: return kernels<Plain<float>>[index](call);
    case Dtype::f64: return kernels<Plain<double>>[index](call);
  }
}

}  // namespace
}  // namespace lockstep::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep {
namespace {

HWY_EXPORT(reduce_on_target);

bool is_integer(Dtype dtype) { return dtype == Dtype::i32 || dtype == Dtype::i64; }

[[noreturn]] void refuse(Dtype dtype, ReduceOp op, const char* why) {
  throw_invalid_argument("reduce (" + std::string(to_string(op)) + ", " + std::string(to_string(dtype)) +
                         "): " + why);
}

}  // namespace

bool supports(Dtype dtype, ReduceOp op) {
  switch (op) {
    case ReduceOp::sum:
    case ReduceOp::product:
    case ReduceOp::min:
    case ReduceOp::max: return dtype != Dtype::u8 && size_of(dtype) != 0;
    case ReduceOp::average: return dtype != Dtype::u8 && size_of(dtype) != 0 && !is_integer(dtype);
  }
  return false;  // a number that came from elsewhere and is no ReduceOp
}

void reduce(Dtype dtype, ReduceOp op, std::size_t elements, std::span<const std::byte* const> sources,
            std::span<std::byte* const> destinations, double scale) {
  if (!supports(dtype, op)) refuse(dtype, op, "this operation is not defined for this type");
  if (sources.empty() || destinations.empty()) refuse(dtype, op, "needs a source and a destination");
  const bool scaled = scale != 1.0;
  if (scaled && is_integer(dtype)) refuse(dtype, op, "integers cannot be scaled");
  if (sources.size() == 1 && !scaled) {
    for (std::byte* destination : destinations) {
      if (destination != sources[0] && elements != 0)
        std::memcpy(destination, sources[0], elements * size_of(dtype));
    }
    return;
  }
  HWY_DYNAMIC_DISPATCH(reduce_on_target)(dtype, op, {elements, sources, destinations, scale});
}

}  // namespace lockstep
#endif
