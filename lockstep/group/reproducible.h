// Sums that do not depend on how many ranks there are. Additions of floating-point numbers are rounded, so a
// sum depends on its order, and the order of an ordinary all_reduce on the ranks. Here the order is that of a
// fixed tree over the contributions, wherever they are: as many micro-batches on 1, 3 or 8 ranks give the
// same bits.
//
//   index          0   1   2   3   4   5         six contributions
//                   \ /     \ /     \ /          ranks hold any runs of them: 0-5; 0-2 and 3-5; ...
//                    +       +       +
//                     \     /        |
//                        +           |
//                          \        /
//                               +
//
// Each rank adds what it can of the tree from its own contributions; the few sums that are left go to the
// owners of the elements' chunks, who add the rest and spread the result.
// Source: pairwise summation (Higham 1993), over the index space instead of an array.
#pragma once

#include <vector>

#include "lockstep/group/collectives.h"

namespace lockstep {

void reproducible_all_reduce_bytes(const Group& group, const std::vector<std::span<const std::byte>>& inputs,
                                   std::span<std::byte> output, Dtype dtype, ReduceOp op);

/// Sums (ReduceOp::sum) or averages over contributions (ReduceOp::average) all ranks' `inputs` element by
/// element into everybody's `output`, which may be one of them or overlap them. Indices go on from rank to
/// rank: rank 0's first input is contribution 0. Ranks may have different numbers of inputs, also none.
/// Halves are added in f32 and rounded once. Blocks. Cost: each rank's additions once; then at most 2
/// log2(inputs a rank) times an all_reduce's bytes, and no more than an all_reduce's where the numbers of
/// inputs are alike and a power of two; halves count twice. Memory: as many buffers as sums are left on all
/// ranks, kept for the next call. Throws Error, and leaves the group as it was: invalid_argument for inputs
/// of another size than `output`, or none at all; mismatch if ranks differ in type, size or operation. Others
/// as Work::wait().
template <Element T>
void reproducible_all_reduce(const Group& group, const std::vector<std::span<const T>>& inputs,
                             std::span<T> output, ReduceOp op = ReduceOp::sum) {
  std::vector<std::span<const std::byte>> bytes;
  for (const auto input : inputs) bytes.push_back(std::as_bytes(input));
  reproducible_all_reduce_bytes(group, bytes, std::as_writable_bytes(output), dtype_of<T>, op);
}

}  // namespace lockstep
