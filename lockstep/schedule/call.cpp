#include "lockstep/schedule/call.h"

#include <algorithm>
#include <ostream>

namespace lockstep {

std::ostream& operator<<(std::ostream& out, const Call& call) {
  out << to_string(call.operation) << " of " << call.elements << " elements, rank " << call.rank << " of "
      << call.ranks;
  if (call.operation == Operation::broadcast || call.operation == Operation::send)
    out << ", root " << call.root;
  if (call.operation == Operation::send) out << ", to " << call.destination;
  return out << ", segments of " << call.segment_elements
             << (call.buffers == BufferClass::arena ? ", arena" : ", private");
}

Range chunk_of(std::size_t elements, int index, int parts) {
  const auto position = static_cast<std::size_t>(index);
  const auto shares = static_cast<std::size_t>(parts);
  const std::size_t least = elements / shares;
  const std::size_t larger = elements % shares;  // the first `larger` chunks hold one more
  return {position * least + std::min(position, larger), least + (position < larger ? 1 : 0)};
}

}  // namespace lockstep
