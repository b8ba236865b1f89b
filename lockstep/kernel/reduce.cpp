// Highway compiles this file once for each kind of vector unit and picks the best one at run time. To give
// the same bits everywhere, every target does the same elementary operations on the same elements in the same
// order: no horizontal sums, no fused multiply-add (nor one of the compiler's making: lockstep/CMakeLists.txt
// compiles this file with -ffp-contract=off), own conversions of halves, and a tail of one-lane vectors.
#include "lockstep/kernel/reduce.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/kernel/form.h"
#include "lockstep/kernel/own_line.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lockstep/kernel/reduce.cpp"
#include "hwy/foreach_target.h"  // includes this file again, once for each target
#include "hwy/highway.h"
#include "lockstep/kernel/codecs_inl.h"

#ifndef LOCKSTEP_KERNEL_REDUCE_CALL
#define LOCKSTEP_KERNEL_REDUCE_CALL
namespace lockstep::kernel {
namespace {

/// `dtype` and `op` are ones that have a kernel: see form.h.
struct ReduceCall {
  Dtype dtype;
  ReduceOp op;
  std::size_t elements;
  std::span<const std::byte* const> sources;
  std::span<std::byte* const> destinations;
  double scale;
};

}  // namespace
}  // namespace lockstep::kernel
#endif

HWY_BEFORE_NAMESPACE();
namespace lockstep::kernel::HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

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

struct BitAnd {
  template <class V>
  static HWY_INLINE V apply(V a, V b) {
    return hn::And(a, b);
  }
};

struct BitOr {
  template <class V>
  static HWY_INLINE V apply(V a, V b) {
    return hn::Or(a, b);
  }
};

struct BitXor {
  template <class V>
  static HWY_INLINE V apply(V a, V b) {
    return hn::Xor(a, b);
  }
};

/// Lanes(d) elements from element `first` on: those of all sources, combined and scaled.
template <class Codec, class Op, class D>
HWY_INLINE hn::Vec<D> combined(D d, const ReduceCall& call, std::size_t first) {
  using Lane = hn::TFromD<D>;
  const std::size_t offset = first * Codec::bytes;
  auto result = Codec::load(d, call.sources[0] + offset);
  // GCC 12 makes the same loop over indices or over pointers of our own 5% slower for halves.
  for (const std::byte* source : call.sources.subspan(1))
    result = Op::apply(result, Codec::load(d, source + offset));
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

// A store to a line that another core holds waits until it is ours. So lines that are only written are asked
// for so far ahead; those that are read as well come with the reads.
constexpr std::size_t ahead_bytes = 1024;

class OwnedAhead {
 public:
  explicit OwnedAhead(const ReduceCall& call) {
    for (std::byte* destination : call.destinations) {
      const bool is_read = std::ranges::find(call.sources, destination) != call.sources.end();
      if (!is_read && count_ < most) destinations_[count_++] = destination;
    }
  }
  bool is_empty() const { return count_ == 0; }
  HWY_INLINE void own(std::size_t begin, std::size_t end) const {
    for (std::size_t i = 0; i < count_; ++i) {
      for (std::size_t offset = begin; offset < end; offset += kernel::line_bytes)
        kernel::own_line(destinations_[i] + offset);
    }
  }

 private:
  static constexpr std::size_t most = 8;
  std::array<std::byte*, most> destinations_;
  std::size_t count_ = 0;
};

// The larger part of a reduction some of whose destinations are only written; returns how many elements. Not
// inline: small reductions are quicker without its code around theirs.
template <class Codec, class Op>
HWY_NOINLINE std::size_t reduce_owning_ahead(const ReduceCall& callers) {
  const ReduceCall call = callers;
  const OwnedAhead owned(call);
  if (owned.is_empty()) return 0;
  const hn::ScalableTag<typename Codec::Lane> d;
  const std::size_t block = 4 * hn::Lanes(d);
  const std::size_t ahead = ahead_bytes / Codec::bytes;
  std::size_t i = 0;
  owned.own(0, ahead_bytes);
  for (; call.elements - i >= block + ahead; i += block) {
    owned.own((i + ahead) * Codec::bytes, (i + ahead + block) * Codec::bytes);
    reduce_four_vectors<Codec, Op>(d, call, i);
  }
  return i;
}

// One loop serves any number of sources and destinations: versions with 2, 3 and 4 sources fixed at compile
// time measured the same (benchmarks/reduce_bench.cpp) and tripled the code.
template <class Codec, class Op>
void reduce_by(const ReduceCall& callers) {
  const ReduceCall call = callers;  // our own: a store to a destination cannot change it
  const hn::ScalableTag<typename Codec::Lane> d;
  const hn::CappedTag<typename Codec::Lane, 1> one;
  const std::size_t lanes = hn::Lanes(d);
  std::size_t i = 0;
  if (call.elements * Codec::bytes >= 2 * ahead_bytes) i = reduce_owning_ahead<Codec, Op>(call);
  for (; call.elements - i >= 4 * lanes; i += 4 * lanes) reduce_four_vectors<Codec, Op>(d, call, i);
  for (; call.elements - i >= lanes; i += lanes) reduce_vector<Codec, Op>(d, call, i);
  for (; i < call.elements; ++i) reduce_vector<Codec, Op>(one, call, i);
}

using Kernel = void (*)(const ReduceCall&);

template <class Codec>
Kernel float_kernel(ReduceOp op) {
  switch (op) {
    case ReduceOp::sum: return reduce_by<Codec, Sum>;
    case ReduceOp::product: return reduce_by<Codec, Product>;
    case ReduceOp::min: return reduce_by<Codec, Min>;
    default: return reduce_by<Codec, Max>;
  }
}

template <class T>
Kernel signed_kernel(ReduceOp op) {
  return op == ReduceOp::min ? reduce_by<Plain<T>, Min> : reduce_by<Plain<T>, Max>;
}

template <class T, class ForProducts = Plain<T>>
Kernel unsigned_kernel(ReduceOp op) {
  switch (op) {
    case ReduceOp::sum: return reduce_by<Plain<T>, Sum>;
    case ReduceOp::product: return reduce_by<ForProducts, Product>;
    case ReduceOp::min: return reduce_by<Plain<T>, Min>;
    default: return reduce_by<Plain<T>, Max>;
  }
}

Kernel byte_kernel(ReduceOp op) {
  switch (op) {
    case ReduceOp::band: return reduce_by<Plain<std::uint8_t>, BitAnd>;
    case ReduceOp::bor: return reduce_by<Plain<std::uint8_t>, BitOr>;
    case ReduceOp::bxor: return reduce_by<Plain<std::uint8_t>, BitXor>;
    default: return unsigned_kernel<std::uint8_t, WideBytes>(op);
  }
}

void reduce_on_target(const ReduceCall& call) {
  switch (call.dtype) {
    case Dtype::u8: return byte_kernel(call.op)(call);
    case Dtype::u16: return unsigned_kernel<std::uint16_t>(call.op)(call);
    case Dtype::u32: return unsigned_kernel<std::uint32_t>(call.op)(call);
    case Dtype::u64: return unsigned_kernel<std::uint64_t>(call.op)(call);
    case Dtype::i8: return signed_kernel<std::int8_t>(call.op)(call);
    case Dtype::i16: return signed_kernel<std::int16_t>(call.op)(call);
    case Dtype::i32: return signed_kernel<std::int32_t>(call.op)(call);
    case Dtype::i64: return signed_kernel<std::int64_t>(call.op)(call);
    case Dtype::f16: return float_kernel<Half<Float16>>(call.op)(call);
    case Dtype::bf16: return float_kernel<Half<BFloat16>>(call.op)(call);
    case Dtype::f32: return float_kernel<Plain<float>>(call.op)(call);
    case Dtype::f64: return float_kernel<Plain<double>>(call.op)(call);
    case Dtype::boolean:
    case Dtype::complex64:
    case Dtype::complex128: return;  // no form has them
  }
}

}  // namespace
}  // namespace lockstep::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::kernel {
namespace {

HWY_EXPORT(reduce_on_target);

[[noreturn]] void refuse(Dtype dtype, ReduceOp op, const char* why) {
  throw_invalid_argument("reduce (" + std::string(to_string(op)) + ", " + std::string(to_string(dtype)) +
                         "): " + why);
}

}  // namespace

bool supports(Dtype dtype, ReduceOp op) { return kernel::find_form(dtype, op).elements != 0; }

void reduce(Dtype dtype, ReduceOp op, std::size_t elements, std::span<const std::byte* const> sources,
            std::span<std::byte* const> destinations, double scale) {
  const kernel::Form form = kernel::find_form(dtype, op);
  if (op == ReduceOp::custom) refuse(dtype, op, "an operation of the user's is the caller's to apply");
  if (form.elements == 0) refuse(dtype, op, "this operation is not defined for this type");
  if (sources.empty() || destinations.empty()) refuse(dtype, op, "needs a source and a destination");
  if (scale != 1.0 && !can_be_scaled(kernel::kind_of(dtype)))
    refuse(dtype, op, "integers and bools cannot be scaled");

  if (sources.size() > 1 || scale != 1.0) {
    const ReduceCall call{.dtype = form.dtype,
                          .op = form.op,
                          .elements = elements * form.elements,
                          .sources = sources,
                          .destinations = destinations,
                          .scale = scale};
    HWY_DYNAMIC_DISPATCH(reduce_on_target)(call);
    return;
  }
  for (std::byte* destination : destinations) {
    if (destination != sources[0] && elements != 0)
      std::memcpy(destination, sources[0], elements * size_of(dtype));
  }
}

}  // namespace lockstep::kernel
#endif
