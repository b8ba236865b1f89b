// How long a collective takes on the machine at hand, for `lockstep bench`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/group/group.h"
#include "lockstep/schedule/tuning.h"

namespace measure {

struct Call {
  lockstep::Operation operation = lockstep::Operation::barrier;
  lockstep::Where where = lockstep::Where::private_memory;  ///< of its buffers: arena, or anything else
  std::uint64_t bytes = 0;                                  ///< of a rank's buffer or block, see tuning.h
};

/// Collectives that can be measured.
const std::vector<lockstep::Operation>& operations();

/// A rank's own memory, for the input and the output of one call at a time.
class PrivateMemory {
 public:
  explicit PrivateMemory(std::uint64_t most_bytes)
      : input(most_bytes / sizeof(float), 1), output(most_bytes / sizeof(float), 1) {}
  std::vector<float> input, output;
};

/// Buffers of f32 for calls up to some size.
class Buffers {
 public:
  /// Collective. `memory` says how large they are, and outlives this.
  Buffers(const lockstep::Group& group, PrivateMemory& memory);

  /// Calls it again and again for at least `seconds` and twice at least, and returns the seconds that one
  /// call took on the slowest rank. Collective, and the same on all ranks.
  double time(const Call& call, double seconds) const;

 private:
  void run(const Call& call) const;

  lockstep::Group group_;
  PrivateMemory& memory_;
  lockstep::ArenaBuffer<float> input_, output_;
};

/// How many bytes a rank's input or output has, the larger one, where a table's limits speak of `bytes`.
std::uint64_t buffer_bytes(lockstep::Operation operation, std::uint64_t bytes, int ranks);

/// What all ranks' values come to. Collective.
double over_all(const lockstep::Group& group, double value, lockstep::ReduceOp op);

}  // namespace measure
