// Which algorithm a call gets. A choice rests only on facts that all ranks share: the call, who shares a
// host, and rank 0's table.
#pragma once

#include <cstddef>
#include <span>

#include "lockstep/schedule/tuning.h"

namespace lockstep {

/// Facts about the group that the choice needs.
struct Neighbourhood {
  std::vector<int> host_of = {};  ///< as in Call; empty: all ranks share memory
  std::size_t slot_bytes = 0;     ///< capacity of a slot; 0 where there are none
  int ranks_per_node = 0;         ///< of memory: as in Call
  bool has_engine = false;        ///< one of its own carries collectives between hosts

  bool is_one_host() const { return host_of.empty(); }
};

namespace schedule {

/// How many ranks each node of memory has, where `nodes` (of each rank, in the ranks' order; -1: not on one
/// alone) are several and have as many each, one node's after another's; 0 otherwise.
int ranks_per_node(std::span<const int> nodes);

/// Whether the call takes the slots, which every rank can tell before it knows the others' buffers.
bool is_one_shot(const Call& call, std::size_t element_bytes, const Neighbourhood& where,
                 const Tuning& tuning);

/// Never fails: where the table has no rule, the first algorithm that can do it.
const AlgorithmEntry& select(const Call& call, std::size_t element_bytes, const Neighbourhood& where,
                             const Tuning& tuning);

}  // namespace schedule
}  // namespace lockstep
