// Every algorithm there is, one family a file. What each costs and when it is chosen stands in
// docs/algorithms.md and select.h.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "lockstep/schedule/schedule.h"

namespace lockstep {

/// What an algorithm needs besides its call.
enum class Requirement : std::uint8_t {
  channels,  ///< messages, so it works everywhere
  hosts,     ///< several hosts: memory that is shared inside each, and messages between them
  exchange,  ///< several hosts, with an engine between them
  slots,     ///< one host, and a small input
  arena,     ///< one host, and shared buffers
  staging,   ///< one host
};

/// One algorithm for one operation.
struct AlgorithmEntry {
  std::string_view name;  ///< of the family, as in docs/algorithms.md, the record and tuning tables
  Operation operation;
  Requirement requirement;
  Algorithm algorithm;
  bool allows_counts = true;    ///< has the v form
  bool allows_in_place = true;  ///< on any rank
  bool keeps_order = true;      ///< combines contributions in the order of ranks
  bool is_for_nodes = false;    ///< of memory: see Call::ranks_per_node
  bool allows_narrow_wire = false;
};

namespace schedule {

// one_shot.cpp: small messages inside a host, through the slots.
Schedule one_shot_barrier(const Call& call);
Schedule one_shot_all_reduce(const Call& call);
Schedule one_shot_reduce(const Call& call);
Schedule one_shot_reduce_scatter(const Call& call);
Schedule one_shot_broadcast(const Call& call);
Schedule one_shot_scatter(const Call& call);
Schedule one_shot_gather(const Call& call);
Schedule one_shot_all_gather(const Call& call);
Schedule one_shot_all_to_all(const Call& call);

// arena.cpp: inside a host, buffers in the arenas.
Schedule arena_all_reduce(const Call& call);
Schedule arena_reduce(const Call& call);
Schedule arena_reduce_scatter(const Call& call);
Schedule arena_broadcast(const Call& call);
Schedule arena_scatter(const Call& call);
Schedule arena_gather(const Call& call);
Schedule arena_all_gather(const Call& call);
Schedule arena_all_to_all(const Call& call);

// numa.cpp: inside a host of several memory nodes, buffers in the arenas.
Schedule numa_all_reduce(const Call& call);
Schedule numa_broadcast(const Call& call);
Schedule numa_all_gather(const Call& call);

// staged.cpp: inside a host, private buffers.
Schedule staged_all_reduce(const Call& call);
Schedule staged_reduce(const Call& call);
Schedule staged_reduce_scatter(const Call& call);
Schedule staged_broadcast(const Call& call);
Schedule staged_scatter(const Call& call);
Schedule staged_gather(const Call& call);
Schedule staged_all_gather(const Call& call);
Schedule staged_all_to_all(const Call& call);

// hierarchical_reductions.cpp, hierarchical_moves.cpp: several hosts, each of which has shared memory.
Schedule hierarchical_barrier(const Call& call);
Schedule hierarchical_all_reduce(const Call& call);
Schedule hierarchical_reduce(const Call& call);
Schedule hierarchical_reduce_scatter(const Call& call);
Schedule hierarchical_broadcast(const Call& call);
Schedule hierarchical_all_gather(const Call& call);

// engine.cpp: several hosts, with an engine between them.
Schedule engine_all_reduce(const Call& call);
Schedule engine_collective(const Call& call);  // any other

// ring.cpp: large messages over channels.
Schedule ring_all_reduce(const Call& call);
Schedule ring_reduce(const Call& call);
Schedule ring_reduce_scatter(const Call& call);
Schedule ring_all_gather(const Call& call);

// tree.cpp: small messages over channels.
Schedule tree_all_reduce(const Call& call);
Schedule tree_reduce(const Call& call);
Schedule tree_broadcast(const Call& call);
Schedule tree_scatter(const Call& call);
Schedule tree_gather(const Call& call);

// recursive.cpp, double_tree.cpp: all_reduce among many ranks, over channels.
Schedule recursive_doubling_all_reduce(const Call& call);
Schedule halving_doubling_all_reduce(const Call& call);
Schedule double_tree_all_reduce(const Call& call);

// scatter_allgather.cpp: long broadcasts over channels.
Schedule scatter_allgather_broadcast(const Call& call);

// pairwise.cpp: everybody talks to everybody.
Schedule pairwise_all_to_all(const Call& call);
Schedule direct_reduce_scatter(const Call& call);
Schedule direct_scatter(const Call& call);
Schedule direct_gather(const Call& call);

// bruck.cpp: short blocks among many ranks, over channels.
Schedule bruck_all_gather(const Call& call);
Schedule bruck_all_to_all(const Call& call);

/// All of them: what tests prove, what docs draw, what select() chooses from.
std::span<const AlgorithmEntry> all_algorithms();

/// The collective of this name that has a choice of algorithms.
std::optional<Operation> operation_named(std::string_view name);
/// Both for messages: "all_reduce, broadcast" and "ring, tree".
std::string names_of_operations();
std::string names_of_algorithms(Operation operation);

}  // namespace schedule
}  // namespace lockstep
