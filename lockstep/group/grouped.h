// Several calls that run as one: many small buffers travel as one large one, and all end together.
//
//   std::vector<std::span<float>> gradients = ...;
//   all_reduce_grouped(world, gradients, ReduceOp::average).wait();
//
// Calls of other kinds are put together by Work::all().
#pragma once

#include <vector>

#include "lockstep/group/collectives.h"

namespace lockstep {

/// Buffers up to this size are copied together into one; larger ones are calls of their own, because copying
/// them would cost more than it saves.
inline constexpr std::size_t most_packed_bytes = std::size_t{64} << 10;

Work all_reduce_grouped_bytes(const Group& group, const std::vector<std::span<std::byte>>& buffers,
                              const Reduction& each);

/// Reduces every buffer in place, as all_reduce does one by one, with the same bits (algorithms.md,
/// Rounding). Ranks pass the same number of buffers, of the same sizes, in the same order. Cost: that of
/// all_reduce of their sum, and one copy of the small ones in each direction; the memory for them is the
/// Work's.
template <OutputRange R, CombinerOf<ValueOf<R>> Op = ReduceOp>
Work all_reduce_grouped(const Group& group, std::vector<R>& buffers, const Op& op = ReduceOp::sum,
                        CollectiveOptions options = {}) {
  std::vector<std::span<std::byte>> bytes;
  for (R& buffer : buffers) bytes.push_back(detail::output_bytes(buffer));
  return all_reduce_grouped_bytes(group, bytes, reduction_of<ValueOf<R>>(op, options));
}

}  // namespace lockstep
