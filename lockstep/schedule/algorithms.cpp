#include "lockstep/schedule/algorithms.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

namespace lockstep::schedule {
namespace {

/// In a class, so that its short names reach no further.
struct Catalog {
  using enum Requirement;
  using enum Operation;

  static constexpr AlgorithmEntry entries[] = {
      {"one_shot", barrier, slots, one_shot_barrier},
      {"one_shot", all_reduce, slots, one_shot_all_reduce},
      {"one_shot", reduce, slots, one_shot_reduce},
      {"one_shot", reduce_scatter, slots, one_shot_reduce_scatter},
      {"one_shot", broadcast, slots, one_shot_broadcast},
      {"one_shot", scatter, slots, one_shot_scatter},
      {"one_shot", gather, slots, one_shot_gather},
      {"one_shot", all_gather, slots, one_shot_all_gather},
      {"one_shot", all_to_all, slots, one_shot_all_to_all, false},

      {"arena", all_reduce, arena, arena_all_reduce},
      {"arena", reduce, arena, arena_reduce},
      {"arena", reduce_scatter, arena, arena_reduce_scatter},
      {"arena", broadcast, arena, arena_broadcast},
      {"arena", scatter, arena, arena_scatter},
      {"arena", gather, arena, arena_gather},
      {"arena", all_gather, arena, arena_all_gather},
      {"arena", all_to_all, arena, arena_all_to_all, false, false},

      {"numa", all_reduce, arena, numa_all_reduce, true, true, true, true},
      {"numa", broadcast, arena, numa_broadcast, true, true, true, true},
      {"numa", all_gather, arena, numa_all_gather, true, true, true, true},

      {"staged", all_reduce, staging, staged_all_reduce},
      {"staged", reduce, staging, staged_reduce},
      {"staged", reduce_scatter, staging, staged_reduce_scatter},
      {"staged", broadcast, staging, staged_broadcast},
      {"staged", scatter, staging, staged_scatter},
      {"staged", gather, staging, staged_gather},
      {"staged", all_gather, staging, staged_all_gather},
      {"staged", all_to_all, staging, staged_all_to_all, false},

      {"mpi", barrier, exchange, engine_collective},
      {"mpi", all_reduce, exchange, engine_all_reduce, true, true, false},
      {"mpi", reduce, exchange, engine_collective, true, true, false},
      {"mpi", reduce_scatter, exchange, engine_collective, true, true, false},
      {"mpi", broadcast, exchange, engine_collective},
      {"mpi", scatter, exchange, engine_collective},
      {"mpi", gather, exchange, engine_collective},
      {"mpi", all_gather, exchange, engine_collective},
      {"mpi", all_to_all, exchange, engine_collective},

      {"hierarchical", barrier, hosts, hierarchical_barrier},
      {"hierarchical", all_reduce, hosts, hierarchical_all_reduce, true, true, false, false, true},
      {"hierarchical", reduce, hosts, hierarchical_reduce, true, true, false, false, true},
      {"hierarchical", reduce_scatter, hosts, hierarchical_reduce_scatter, true, true, false, false, true},
      {"hierarchical", broadcast, hosts, hierarchical_broadcast},
      {"hierarchical", all_gather, hosts, hierarchical_all_gather},

      {"tree", barrier, channels, tree_all_reduce},
      {"tree", all_reduce, channels, tree_all_reduce},
      {"recursive_doubling", all_reduce, channels, recursive_doubling_all_reduce},
      {"halving_doubling", all_reduce, channels, halving_doubling_all_reduce, true, true, false},
      {"double_tree", all_reduce, channels, double_tree_all_reduce, true, true, false},
      {"ring", all_reduce, channels, ring_all_reduce, true, true, false},
      {"tree", reduce, channels, tree_reduce},
      {"ring", reduce, channels, ring_reduce, true, true, false},
      {"direct", reduce_scatter, channels, direct_reduce_scatter},
      {"ring", reduce_scatter, channels, ring_reduce_scatter, true, true, false},
      {"tree", broadcast, channels, tree_broadcast},
      {"scatter_allgather", broadcast, channels, scatter_allgather_broadcast},
      {"tree", scatter, channels, tree_scatter},
      {"direct", scatter, channels, direct_scatter},
      {"tree", gather, channels, tree_gather},
      {"direct", gather, channels, direct_gather},
      {"bruck", all_gather, channels, bruck_all_gather},
      {"ring", all_gather, channels, ring_all_gather},
      {"bruck", all_to_all, channels, bruck_all_to_all, false},
      {"pairwise", all_to_all, channels, pairwise_all_to_all},
  };
};

}  // namespace

std::span<const AlgorithmEntry> all_algorithms() { return Catalog::entries; }

std::optional<Operation> operation_named(std::string_view name) {
  for (const AlgorithmEntry& entry : all_algorithms()) {
    if (to_string(entry.operation) == name) return entry.operation;
  }
  return std::nullopt;
}

std::string names_of_operations() {
  std::vector<std::string_view> names;
  for (const AlgorithmEntry& entry : all_algorithms()) {
    if (std::ranges::find(names, to_string(entry.operation)) == names.end())
      names.push_back(to_string(entry.operation));
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

std::string names_of_algorithms(Operation operation) {
  std::vector<std::string_view> names;
  for (const AlgorithmEntry& entry : all_algorithms()) {
    if (entry.operation == operation) names.push_back(entry.name);
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace lockstep::schedule
