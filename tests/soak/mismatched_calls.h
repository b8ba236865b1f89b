// Pairs of calls that ranks of one group must not make together, drawn by a seed; and what an error about
// them has to say.
#pragma once

#include <cstddef>
#include <random>
#include <string>
#include <vector>

#include "lockstep/group/collectives.h"
#include "tests/fault/probe_memory.h"

namespace soak {

/// A collective with all that ranks have to agree in.
struct DrawnCall {
  enum class Kind {
    all_reduce,
    grouped,
    custom,
    reduce,
    reduce_scatter,
    reduce_scatter_v,
    broadcast,
    scatter,
    scatter_v,
    gather,
    gather_v,
    all_gather,
    all_gather_v,
    all_to_all,
    all_to_all_v,  ///< every rank sends counts[q] to rank q
    barrier
  };
  Kind kind = Kind::barrier;
  lockstep::Dtype dtype = lockstep::Dtype::f32;  ///< of the moving ones: how large an element is
  lockstep::ReduceOp op = lockstep::ReduceOp::sum;
  float prescale = 1.0F;
  int root = 0;
  std::size_t elements = 0;                   ///< of the buffer, or of one rank's block
  std::vector<std::size_t> counts = {};       ///< the v forms: of each rank; grouped: of each buffer
  probe::Memory memory = probe::Memory::own;  ///< ranks may differ in it

  /// As an error has to say it: "all_reduce (sum of f32 x 100)".
  std::string text() const;
  /// Whether ranks may call this and `other` together.
  bool fits(const DrawnCall& other) const;
  /// Calls and waits, with buffers of its own.
  void run(const lockstep::Group& group) const;
};

/// Calls of two sets of ranks, in order: the same at first, then one that does not fit.
struct DrawnMismatch {
  std::vector<int> ranks;      ///< of the world, in the order in which they are a group
  std::vector<bool> is_other;  ///< by rank of the group: makes the other calls
  std::vector<DrawnCall> ones, others;
  std::size_t number = 0;  ///< of the first call that does not fit
  std::string what;        ///< differs: "op", "order"
};

DrawnMismatch draw_mismatch(std::mt19937_64& dice, int world_size);

/// Why `text` is not what an error about `drawn` has to say; empty: it is.
std::string fault_in(const std::string& text, const DrawnMismatch& drawn);

}  // namespace soak
