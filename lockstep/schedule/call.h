// What a collective is called with, as far as every rank of the group knows it. An algorithm is a pure
// function of a Call, so nothing that only one rank knows may enter here: two ranks with different schedules
// would hang.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iosfwd>

#include "lockstep/base/operation.h"

namespace lockstep {

/// Whose memory the buffers are. `arena` only when every rank passed a buffer of the group's arenas.
enum class BufferClass : std::uint8_t { private_memory = 0, arena = 1 };

struct Call {
  Operation operation = Operation::all_reduce;
  std::size_t elements = 0;  ///< per rank; all_gather's output holds ranks * elements
  int rank = 0;              ///< the rank whose steps are asked for
  int ranks = 1;
  int root = 0;         ///< broadcast: the source. send: the source; receive never appears in a Call.
  int destination = 0;  ///< send only
  BufferClass buffers = BufferClass::private_memory;
  /// Largest number of elements in one message, so that a receiver can work on one while the next is under
  /// way.
  std::size_t segment_elements = 65536;

  friend bool operator==(const Call&, const Call&) = default;
};

std::ostream& operator<<(std::ostream& out, const Call& call);

/// A run of elements [begin, begin + count).
struct Range {
  std::size_t begin = 0;
  std::size_t count = 0;
};

/// The `index`th of `parts` shares of `elements`: contiguous, in order, sizes differing by at most one.
/// A rank's share is called its chunk.
Range chunk_of(std::size_t elements, int index, int parts);

}  // namespace lockstep
