// one_shot: small messages inside a host. Every rank copies its input into its slot, a small cell in shared
// memory; once all have arrived, each takes what it needs from all slots.
//
//            copy in     all arrived     all_reduce on four ranks
//   rank 0    W               |            R             W: its own slot
//   rank 1           W        |            R             R: all four slots
//   rank 2                W   |            R
//   rank 3       W            |            R
//
// One wait; at most p reads a rank. All ranks compute the same sums in the same order, so all hold the same
// bits. A slot is reused only when all ranks are past it; the executor sees to that (execute/arrivals.h).
// Source: shared-memory folklore; the flat form of "all-to-all broadcast" in Graham & Shipman 2008.
#include <vector>

#include "lockstep/schedule/algorithms.h"

namespace lockstep::schedule {
namespace {

Place slot(int rank, std::size_t offset = 0) { return {Space::slot, rank, offset}; }

std::vector<Place> slots(const Call& call, std::size_t offset = 0) {
  std::vector<Place> places;
  for (int rank = 0; rank < call.ranks; ++rank) places.push_back(slot(rank, offset));
  return places;
}

/// Everybody's input is in its slot.
Schedule filled(const Call& call) {
  Schedule steps;
  steps.copy(input_at(call), slot(call.rank), input_elements(call));
  steps.wait_for_all();
  return steps;
}

void reduce_slots(Schedule& steps, const Call& call, Range part) {
  const Place mine = output_at(call);
  steps.reduce(slots(call, part.begin), std::span(&mine, 1), part.count, true);
}

void collect_slots(Schedule& steps, const Call& call) {
  for (int rank = 0; rank < call.ranks; ++rank) {
    const Range block = block_of(call, rank);
    steps.copy(slot(rank), output_at(call, block.begin), block.count);
  }
}

}  // namespace

Schedule one_shot_barrier(const Call&) {
  Schedule steps;
  steps.wait_for_all();
  return steps;
}

Schedule one_shot_all_reduce(const Call& call) {
  Schedule steps = filled(call);
  reduce_slots(steps, call, {0, call.elements});
  return steps;
}

Schedule one_shot_reduce(const Call& call) {
  Schedule steps = filled(call);
  if (call.rank == call.root) reduce_slots(steps, call, {0, call.elements});
  return steps;
}

Schedule one_shot_reduce_scatter(const Call& call) {
  Schedule steps = filled(call);
  reduce_slots(steps, call, block_of(call, call.rank));
  return steps;
}

Schedule one_shot_broadcast(const Call& call) {
  Schedule steps;
  if (call.rank == call.root) steps.copy(output_at(call), slot(call.root), call.elements);
  steps.wait_for_all();
  if (call.rank != call.root) steps.copy(slot(call.root), output_at(call), call.elements);
  return steps;
}

Schedule one_shot_scatter(const Call& call) {
  Schedule steps = filled(call);
  const Range block = block_of(call, call.rank);
  steps.copy(slot(call.root, block.begin), output_at(call), block.count);
  return steps;
}

Schedule one_shot_gather(const Call& call) {
  Schedule steps = filled(call);
  if (call.rank == call.root) collect_slots(steps, call);
  return steps;
}

Schedule one_shot_all_gather(const Call& call) {
  Schedule steps = filled(call);
  collect_slots(steps, call);
  return steps;
}

Schedule one_shot_all_to_all(const Call& call) {
  Schedule steps = filled(call);
  for (int rank = 0; rank < call.ranks; ++rank) {
    const auto mine = static_cast<std::size_t>(call.rank) * call.elements;
    steps.copy(slot(rank, mine), output_at(call, received_block(call, rank).begin), call.elements);
  }
  return steps;
}

}  // namespace lockstep::schedule
