// What the record holds: one event for each collective and for each training step.
#pragma once

#include <cstdint>

#include "lockstep/base/signature.h"

namespace lockstep::trace {

/// Whether these are values of their types. A program can write into shared memory by mistake, and another host can send
/// anything; what makes no sense cannot be told.
constexpr bool makes_sense(Operation operation, Dtype dtype, ReduceOp reduce_op) {
  return operation <= Operation::all_to_all && size_of(dtype) != 0 && reduce_op <= ReduceOp::custom;
}

/// A collective that is over. Times are nanoseconds of CLOCK_MONOTONIC: comparable between processes of one
/// host.
struct CompletedCollective {
  std::uint64_t sequence;  ///< the group's count of collectives
  std::uint64_t elements;  ///< per rank
  std::uint64_t begin_ns;  ///< submitted on this rank: the others know of it
  /// The last moment at which this rank did not know yet that all others had arrived; begin_ns where it
  /// waited for none, end_ns where none is awaited.
  std::uint64_t arrived_ns;
  std::uint64_t end_ns;  ///< complete on this rank
  std::uint32_t group;   ///< a number derived from the group's name, the same on all ranks
  Operation operation;
  Dtype dtype;
  ReduceOp reduce_op;
  std::uint8_t failed;  ///< 1: ended by an error
};

/// The same with the name of its algorithm: as it is read.
struct CollectiveEvent : CompletedCollective {
  char algorithm[24];  ///< as in docs/algorithms.md, padded with zeros
};

/// A backward pass with communication, or a step of a ShardedOptimizer, which begins when all gradients are
/// there and whose one pass that adds and updates counts as no exposed work: it is the optimizer's own.
struct TrainingStepEvent {
  std::uint64_t step;              ///< from 0
  std::uint64_t begin_ns;          ///< the forward that began it
  std::uint64_t last_gradient_ns;  ///< the last gradient of this rank was ready
  std::uint64_t end_ns;            ///< all buckets complete; backward returns
  std::uint64_t exposed_work_ns;   ///< in our hooks and the last wait: copying and reducing
  std::uint64_t exposed_wait_ns;   ///< there: waiting for others; on a GPU by its own clock
  std::uint32_t buckets;
  std::uint32_t buckets_complete_at_last_gradient;
  std::uint64_t gradient_bytes;
};

}  // namespace lockstep::trace
