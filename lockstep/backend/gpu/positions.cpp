#include "lockstep/backend/gpu/positions.h"

#include <cstring>

#include "lockstep/backend/mismatch.h"
#include "lockstep/base/log.h"
#include "lockstep/trace/event.h"

namespace lockstep {

void GpuPositions::tell(const Position& position) {
  try {
    store_.set(key_of(members_.rank()),
               std::string(reinterpret_cast<const char*>(&position), sizeof(position)));
  } catch (const Error& error) {  // the rank that serves the store is gone
    log::debug(error.what());
  }
}

std::optional<GpuPositions::Position> GpuPositions::of(int rank) const {
  const auto text = store_.try_get(key_of(rank));
  Position position;
  if (!text || text->size() != sizeof(position)) return std::nullopt;
  std::memcpy(static_cast<void*>(&position), text->data(), sizeof(position));
  const Signature& called = position.called;
  if (!trace::makes_sense(called.operation, called.dtype, called.reduce_op)) return std::nullopt;
  return position;
}

std::vector<int> GpuPositions::missing_in(std::uint64_t number, const Signature& called) const {
  std::vector<int> missing;
  for (int rank = 0; rank < members_.size(); ++rank) {
    if (rank == members_.rank()) continue;
    const auto position = of(rank);
    const bool is_here = position && position->number == number && position->called.elements != through;
    const bool is_beyond = position && position->number > number;
    if (!is_here && !is_beyond) {
      missing.push_back(members_[rank].world);
    } else if (is_here && !called.matches(position->called)) {
      const Caller mine{members_.self().world, called, number};
      const Caller other{members_[rank].world, position->called, number};
      throw rank < members_.rank() ? mismatch(other, mine) : mismatch(mine, other);
    }
  }
  return missing;
}

}  // namespace lockstep
