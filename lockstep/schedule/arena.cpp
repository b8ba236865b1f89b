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
// An all_reduce has 2pn bytes of memory traffic, the least there can be.
//
// What only moves is moved from both ends: its owner pushes the first part, who wants it pulls the rest, so
// that all ranks work and each has something on its way in both directions, which the executor copies in turn
// (kernel/copy.h). Source: shared-memory folklore; the two ends are our own.
#include <vector>

#include "lockstep/schedule/algorithms.h"

namespace lockstep::schedule {
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

/// What this rank does for elements that go from one rank to another: the first `pushed` of them are the
/// source's to copy, the others the destination's.
void move(Schedule& steps, const Call& call, Place source, Place destination, std::size_t elements,
          std::size_t pushed) {
  if (source.rank == destination.rank) pushed = elements;
  if (call.rank == source.rank) {
    steps.copy(source, destination, pushed);
  } else if (call.rank == destination.rank) {
    steps.copy(at(source, pushed), at(destination, pushed), elements - pushed);
  }
}

/// A p-th: what the root has to do of each move, so that it does as much as the others.
std::size_t roots_share(const Call& call, std::size_t elements) {
  return chunk_of(elements, 0, call.ranks).count;
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
  const Place mine = output_at(call);
  steps.wait_for_all();
  steps.reduce(everywhere(call, Space::input, block.begin), std::span(&mine, 1), block.count, true);
  steps.wait_for_all();
  return steps;
}

Schedule arena_broadcast(const Call& call) {
  Schedule steps;
  steps.wait_for_all();
  for (const int rank : from_own_on(call)) {
    if (rank == call.root) continue;
    move(steps, call, {Space::output, call.root, 0}, {Space::output, rank, 0}, call.elements,
         roots_share(call, call.elements));
  }
  steps.wait_for_all();
  return steps;
}

Schedule arena_scatter(const Call& call) {
  Schedule steps;
  steps.wait_for_all();
  for (const int rank : from_own_on(call)) {
    const Range block = block_of(call, rank);
    move(steps, call, {Space::input, call.root, block.begin}, {Space::output, rank, 0}, block.count,
         roots_share(call, block.count));
  }
  steps.wait_for_all();
  return steps;
}

Schedule arena_gather(const Call& call) {
  Schedule steps;
  steps.wait_for_all();
  for (const int rank : from_own_on(call)) {
    const Range block = block_of(call, rank);
    move(steps, call, {Space::input, rank, 0}, {Space::output, call.root, block.begin}, block.count,
         block.count - roots_share(call, block.count));
  }
  steps.wait_for_all();
  return steps;
}

// Every rank has something for every other: a push to the one so many places on, a pull from the one so many
// places back, and then the next two.
Schedule arena_all_gather(const Call& call) {
  Schedule steps;
  const auto move_between = [&](int from, int to) {
    const Range block = block_of(call, from);
    move(steps, call, {Space::input, from, 0}, {Space::output, to, block.begin}, block.count,
         block.count / 2);
  };
  steps.wait_for_all();
  move_between(call.rank, call.rank);
  for (int step = 1; step < call.ranks; ++step) {
    move_between(call.rank, wrapped(call.rank + step, call.ranks));
    move_between(wrapped(call.rank - step, call.ranks), call.rank);
  }
  steps.wait_for_all();
  return steps;
}

// Only pulled: blocks are read by one rank each, and a push gains nothing (docs/decisions/0007).
Schedule arena_all_to_all(const Call& call) {
  Schedule steps;
  const auto mine = static_cast<std::size_t>(call.rank) * call.elements;
  steps.wait_for_all();
  for (const int rank : from_own_on(call)) {
    steps.copy({Space::input, rank, mine}, output_at(call, received_block(call, rank).begin), call.elements);
  }
  steps.wait_for_all();
  return steps;
}

}  // namespace lockstep::schedule
