#include "lockstep/schedule/select.h"

#include <algorithm>

#include "lockstep/base/env.h"
#include "lockstep/schedule/algorithms.h"

namespace lockstep {

Tuning Tuning::from_environment() {
  Tuning tuning;
  tuning.one_shot_bytes = env::bytes("LOCKSTEP_ONE_SHOT_BYTES").value_or(tuning.one_shot_bytes);
  tuning.tree_bytes = env::bytes("LOCKSTEP_TREE_BYTES").value_or(tuning.tree_bytes);
  // A segment holds at least the largest element.
  tuning.segment_bytes =
      std::max<std::uint64_t>(64, env::bytes("LOCKSTEP_SEGMENT_BYTES").value_or(tuning.segment_bytes));
  return tuning;
}

bool is_one_shot(const Call& call, std::size_t element_bytes, const Neighbourhood& where,
                 const Tuning& tuning) {
  if (!where.one_host || call.operation == Operation::send) return false;
  const std::size_t limit = std::min<std::size_t>(tuning.one_shot_bytes, where.slot_bytes);
  return call.elements <= limit / element_bytes;
}

Choice select(const Call& call, std::size_t element_bytes, const Neighbourhood& where, const Tuning& tuning) {
  const bool one_shot = is_one_shot(call, element_bytes, where, tuning);
  const bool arena = where.one_host && call.buffers == BufferClass::arena;
  switch (call.operation) {
    case Operation::barrier:
    case Operation::all_reduce:
      if (one_shot) return {"one_shot", one_shot_all_reduce};
      if (arena) return {"arena_push", arena_push_all_reduce};
      if (call.elements <= tuning.tree_bytes / element_bytes) return {"tree", tree_all_reduce};
      return {"ring", ring_all_reduce};
    case Operation::broadcast:
      if (one_shot) return {"one_shot", one_shot_broadcast};
      if (arena) return {"arena_pull", arena_broadcast};
      return {"tree", tree_broadcast};
    case Operation::all_gather:
      if (one_shot) return {"one_shot", one_shot_all_gather};
      if (arena) return {"arena_push", arena_push_all_gather};
      return {"ring", ring_all_gather};
    case Operation::send:
    case Operation::receive: break;
  }
  return {"point_to_point", point_to_point};
}

}  // namespace lockstep
