// one_shot: small messages inside one host. Every rank owns a slot, a small cell in shared memory beside its
// arrival flag: it puts its contribution there, arrives, and reads everybody's slot itself.
//
//            slot 0   slot 1   slot 2   slot 3
//   rank 0     W                                 |          W: own contribution
//   rank 1              W                        | R R R R  R: all four slots, in rank order
//   rank 2                       W               |
//   rank 3                                W      |
//
// One wait; p reads a rank. All ranks compute the same sums in the same order, so all hold the same bits.
// A slot is reused only when all ranks are past it; the executor sees to that (execute/arrivals.h).
// Source: shared-memory folklore; the flat form of "all-to-all broadcast" in Graham & Shipman 2008.
#include <vector>

#include "lockstep/schedule/algorithms.h"

namespace lockstep {
namespace {

Place slot(int rank) { return {Space::slot, rank, 0}; }

}  // namespace

Schedule one_shot_all_reduce(const Call& call) {
  Schedule steps;
  const Place mine{Space::output, call.rank, 0};
  std::vector<Place> slots;
  for (int rank = 0; rank < call.ranks; ++rank) slots.push_back(slot(rank));
  steps.copy(mine, slot(call.rank), call.elements);
  steps.wait_for_all();
  steps.reduce(slots, std::span(&mine, 1), call.elements, true);
  return steps;
}

Schedule one_shot_broadcast(const Call& call) {
  Schedule steps;
  const Place mine{Space::output, call.rank, 0};
  if (call.rank == call.root) steps.copy(mine, slot(call.root), call.elements);
  steps.wait_for_all();
  if (call.rank != call.root) steps.copy(slot(call.root), mine, call.elements);
  return steps;
}

Schedule one_shot_all_gather(const Call& call) {
  Schedule steps;
  steps.copy({Space::input, call.rank, 0}, slot(call.rank), call.elements);
  steps.wait_for_all();
  for (int rank = 0; rank < call.ranks; ++rank) {
    steps.copy(slot(rank), {Space::output, call.rank, static_cast<std::size_t>(rank) * call.elements},
               call.elements);
  }
  return steps;
}

}  // namespace lockstep
