// arena: inside a host, where every rank maps the others' buffers. Data moves once, from where it lies to
// where it belongs, between two waits: inputs are ready, outputs are ready.
//
// A reduction is a push: each rank owns one chunk, reads that chunk of every input, reduces in registers, and
// writes the result into every output that wants it.
//
//            chunk 0   chunk 1   chunk 2   chunk 3
//   rank 0    R W                                      R: of all four inputs
//   rank 1              R W                            W: to all four outputs (reduce: the root's)
//   rank 2                        R W
//   rank 3                                  R W
//
// An all_reduce has 2pn bytes of memory traffic, the least there can be. What only moves is pulled by who
// wants it, for reading another core's lines is cheaper than writing them; gather alone is pushed, so that
// all ranks share its work. Source: shared-memory folklore.
#include <vector>

#include "lockstep/schedule/algorithms.h"

namespace lockstep {
namespace {

std::vector<Place> everywhere(const Call& call, Space space, std::size_t offset) {
  std::vector<Place> places;
  for (int rank = 0; rank < call.ranks; ++rank) places.push_back({space, rank, offset});
  return places;
}

/// This rank's own block first, then its neighbour's: so the ranks do not all read one rank at once.
std::vector<int> from_own_on(const Call& call) {
  std::vector<int> ranks;
  for (int step = 0; step < call.ranks; ++step) ranks.push_back(wrapped(call.rank + step, call.ranks));
  return ranks;
}

Place output(const Call& call, std::size_t offset = 0) { return {Space::output, call.rank, offset}; }

/// Only the root's buffer is touched by others: they need not wait for each other.
void root_awaits(Schedule& steps, const Call& call) {
  if (call.rank == call.root) {
    steps.wait_for_all();
  } else {
    steps.arrive();
  }
}

}  // namespace

Schedule arena_all_reduce(const Call& call) {
  Schedule steps;
  const Range chunk = chunk_of(call.elements, call.rank, call.ranks);
  steps.wait_for_all();
  steps.reduce(everywhere(call, Space::input, chunk.begin), everywhere(call, Space::output, chunk.begin),
               chunk.count, true);
  steps.wait_for_all();
  return steps;
}

Schedule arena_reduce(const Call& call) {
  Schedule steps;
  const Range chunk = chunk_of(call.elements, call.rank, call.ranks);
  const Place result{Space::output, call.root, chunk.begin};
  steps.wait_for_all();
  steps.reduce(everywhere(call, Space::input, chunk.begin), std::span(&result, 1), chunk.count, true);
  steps.wait_for_all();
  return steps;
}

Schedule arena_reduce_scatter(const Call& call) {
  Schedule steps;
  const Range block = block_of(call, call.rank);
  const Place mine = output(call);
  steps.wait_for_all();
  steps.reduce(everywhere(call, Space::input, block.begin), std::span(&mine, 1), block.count, true);
  steps.wait_for_all();
  return steps;
}

Schedule arena_broadcast(const Call& call) {
  Schedule steps;
  steps.wait_for_all();
  if (call.rank != call.root) steps.copy({Space::output, call.root, 0}, output(call), call.elements);
  root_awaits(steps, call);
  return steps;
}

Schedule arena_scatter(const Call& call) {
  Schedule steps;
  const Range block = block_of(call, call.rank);
  steps.wait_for_all();
  steps.copy({Space::input, call.root, block.begin}, output(call), block.count);
  root_awaits(steps, call);
  return steps;
}

Schedule arena_gather(const Call& call) {
  Schedule steps;
  const Range block = block_of(call, call.rank);
  steps.wait_for_all();
  steps.copy({Space::input, call.rank, 0}, {Space::output, call.root, block.begin}, block.count);
  root_awaits(steps, call);
  return steps;
}

Schedule arena_all_gather(const Call& call) {
  Schedule steps;
  steps.wait_for_all();
  for (const int rank : from_own_on(call)) {
    const Range block = block_of(call, rank);
    steps.copy({Space::input, rank, 0}, output(call, block.begin), block.count);
  }
  steps.wait_for_all();
  return steps;
}

Schedule arena_all_to_all(const Call& call) {
  Schedule steps;
  const auto mine = static_cast<std::size_t>(call.rank) * call.elements;
  steps.wait_for_all();
  for (const int rank : from_own_on(call)) {
    steps.copy({Space::input, rank, mine}, output(call, received_block(call, rank).begin), call.elements);
  }
  steps.wait_for_all();
  return steps;
}

}  // namespace lockstep
