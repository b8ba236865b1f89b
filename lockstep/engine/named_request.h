// A named operation, as one rank asks for it. Ranks ask in any order, so what they mean is found by the name,
// and everything else is compared: a shape that differs is an error with both ranks in it, not a sum of
// things that have nothing to do with each other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/base/dtype.h"
#include "lockstep/base/memory_place.h"
#include "lockstep/base/operation.h"
#include "lockstep/base/reduce_op.h"

namespace lockstep {

using Shape = std::vector<std::int64_t>;

struct NamedLimits {
  std::size_t name_bytes = 4096;
  std::size_t dimensions = 64;
  std::size_t buffers = std::size_t{1} << 16;  ///< of one grouped call
  std::size_t rows = std::size_t{1} << 16;     ///< numbers in NamedRequest::rows
};
inline constexpr NamedLimits named_limits = {};

struct NamedRequest {
  std::string name;
  Operation operation = Operation::barrier;
  Dtype dtype = Dtype::u8;
  ReduceOp reduce_op = ReduceOp::sum;
  float prescale = 1.0F;
  int root = 0;
  /// Its buffers are on each rank's GPU; where some rank's are not, or the GPUs do not reach each other, they go through main memory.
  bool is_on_gpu = false;
  /// Of each buffer; several in a grouped all_reduce. Where there are `rows`, without the first dimension.
  std::vector<Shape> shapes = {};
  /// What may differ between ranks. all_gather: how many rows this rank has; all_to_all: how many it sends to
  /// each rank; empty for all others.
  std::vector<std::int64_t> rows = {};

  /// Whether both can be parts of one operation, wherever their buffers are.
  bool fits(const NamedRequest& other) const;
  friend bool operator==(const NamedRequest&, const NamedRequest&) = default;
};

/// What a named operation reads and writes; borrowed until it is over.
struct NamedBuffers {
  std::vector<std::span<std::byte>> in_place = {};  ///< all_reduce: as many as shapes; broadcast: one
  MemoryPlace place = {};                           ///< of all buffers
  std::span<const std::byte> input = {};            ///< the others
  /// The others' result, once its size is known: rows from each rank; of reduce_scatter, this rank's alone.
  /// Called by whoever drives the operation, which may be another thread. On a GPU it is memory that nothing there uses any more.
  std::function<std::span<std::byte>(std::span<const std::int64_t> rows)> make_output = {};
};

/// As in messages: all_reduce "loss" (average of f32 [3, 4]).
std::string to_string(const NamedRequest& request);

/// The product of the dimensions; 1 for a scalar.
std::size_t elements_of(const Shape& shape);
/// Of all shapes together, for a buffer without rows.
std::size_t bytes_of(const NamedRequest& request);

/// Why it can never be carried out: it has no name, something beyond named_limits or negative, or more
/// elements than memory can hold. Empty if it can.
std::string fault_of(const NamedRequest& request);
/// Throws Error{invalid_argument} where there is such a fault.
void require_sound(const NamedRequest& request);

}  // namespace lockstep
