// Collectives compared with a plain reference that knows nothing of schedules. Values are chosen so that
// every result is exact in every type, whatever the order of additions; how far results may be off where they
// are not exact is checked on its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "lockstep/group/collectives.h"

namespace lockstep::testing {

/// Memory of a GPU that this process can read and write, at other addresses than the GPU's.
struct GpuMemory {
  MemoryPlace place;
  /// Returns where this process sees it.
  std::function<std::byte*(std::size_t bytes)> allocate;
  std::function<void(std::byte* seen)> release;
  /// From where this process sees it to the GPU's address.
  std::ptrdiff_t to_gpu = 0;
  /// Whether it reduces so; the others are left out.
  std::function<bool(Dtype dtype, ReduceOp op)> supports;
};

/// What NCCL reduces: no bits, no integers of 16.
inline bool nccl_reduces(Dtype dtype, ReduceOp op) {
  const bool has_type = dtype != Dtype::i16 && dtype != Dtype::u16;
  return has_type && op != ReduceOp::band && op != ReduceOp::bor && op != ReduceOp::bxor;
}

struct ConformanceOptions {
  bool in_arena = false;                     ///< all buffers in the arenas
  bool registered = false;                   ///< or elsewhere, and registered
  const Group* memory_of = nullptr;          ///< both of this group, not of the one that calls
  std::span<const std::size_t> counts = {};  ///< elements
  const GpuMemory* gpu = nullptr;            ///< all buffers there instead; for reductions and movements

  MemoryPlace place() const { return gpu != nullptr ? gpu->place : MemoryPlace(); }
  /// The address of what this process sees there, for calls.
  template <class T>
  std::span<T> at(std::span<T> seen) const {
    if (gpu == nullptr || seen.empty()) return seen;
    return {reinterpret_cast<T*>(reinterpret_cast<std::uintptr_t>(seen.data()) +
                                 static_cast<std::uintptr_t>(gpu->to_gpu)),
            seen.size()};
  }
};

// Each is a collective call on all ranks of `group` and throws std::runtime_error with what differs, where.

/// all_reduce, reduce, reduce_scatter and their v form, in place and out of place, every dtype and op.
void check_reductions(const Group& group, const ConformanceOptions& options);
/// The same for one dtype and averages only, of what is multiplied before, too.
void check_sums(const Group& group, const ConformanceOptions& options);
/// broadcast, scatter, gather, all_gather, all_to_all and their v forms, in place and out of place (on a GPU all_to_all out of
/// place).
void check_movements(const Group& group, const ConformanceOptions& options);
/// A user's operation that does not commute, on a type of its own.
void check_custom_op(const Group& group, const ConformanceOptions& options);
/// Sums of f32 and halves that must be rounded: all ranks have the same bits, and they are as near to the
/// exact sum as docs/algorithms.md says. `roundings` of halves: 1 where a sum is made in one go.
void check_rounding(const Group& group, const ConformanceOptions& options, int roundings);
/// Sums of f32 that cross between hosts in halves (InitOptions::wire_dtype), of which a half step is `unit`: as near to the exact
/// ones as promised, with the same bits on all ranks; short ones are not touched.
void check_narrow_wire(const Group& group, const ConformanceOptions& options, double unit);
/// send and recv: tags, any source, self, sendrecv; of counts of its own.
void check_messages(const Group& group, const ConformanceOptions& options);

}  // namespace lockstep::testing
