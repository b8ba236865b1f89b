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

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
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

/// The same for who has contributions one after the other, and knows how many all ranks have together: what can be added is
/// added at once, so that log2(contributions) buffers are enough. Thread safety: none.
///
///   ReproducibleSum sum(group, Dtype::f32, elements, first, total);
///   for (...) { fill(sum.next()); sum.add(); }
///   sum.all_reduce(output, ReduceOp::average);
class ReproducibleSum {
 public:
  /// This rank's contributions are `first` and those after it, of `total` of all ranks. They go on from rank to rank, as above.
  /// Not collective. Throws Error{invalid_argument} for types that are not added.
  ReproducibleSum(const Group& group, Dtype dtype, std::size_t elements, std::uint64_t first,
                  std::uint64_t total);
  ReproducibleSum(ReproducibleSum&&) noexcept;
  ReproducibleSum& operator=(ReproducibleSum&&) noexcept;
  ~ReproducibleSum();

  /// Memory for the next contribution, to be filled until add(); what was in it is undefined.
  std::span<std::byte> next();
  /// Takes what next() was filled with.
  void add();
  /// Collective, once, when all contributions are there: the sum or the average over them. Throws as reproducible_all_reduce(),
  /// and invalid_argument where the ranks' contributions are not `total` one after the other.
  void all_reduce(std::span<std::byte> output, ReduceOp op);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep
