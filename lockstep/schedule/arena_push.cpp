// arena_push: collectives inside one host whose buffers all lie in the arenas, which every rank of the host
// maps. Each rank owns one chunk: it reads that chunk of every input, reduces in registers, and writes the
// result into every output.
//
//            chunk 0   chunk 1   chunk 2   chunk 3
//   rank 0    R W                                      R: of all four buffers
//   rank 1              R W                            W: to all four buffers
//   rank 2                        R W
//   rank 3                                  R W
//
// Two waits, one pass: 2pn bytes of memory traffic, the least there can be. Source: shared-memory folklore.
#include <vector>

#include "lockstep/schedule/algorithms.h"

namespace lockstep {
namespace {

std::vector<Place> all_outputs(const Call& call, std::size_t offset) {
  std::vector<Place> places;
  for (int rank = 0; rank < call.ranks; ++rank) places.push_back({Space::output, rank, offset});
  return places;
}

}  // namespace

Schedule arena_push_all_reduce(const Call& call) {
  Schedule steps;
  const Range chunk = chunk_of(call.elements, call.rank, call.ranks);
  const auto everywhere = all_outputs(call, chunk.begin);
  steps.wait_for_all();  // inputs are ready
  steps.reduce(everywhere, everywhere, chunk.count, true);
  steps.wait_for_all();  // outputs are ready
  return steps;
}

// Every rank but the root reads the root's buffer: np bytes read in parallel.
Schedule arena_broadcast(const Call& call) {
  Schedule steps;
  steps.wait_for_all();
  if (call.rank != call.root) {
    steps.copy({Space::output, call.root, 0}, {Space::output, call.rank, 0}, call.elements);
  }
  steps.wait_for_all();
  return steps;
}

// Every rank writes its input into everybody's output; inputs may be private.
Schedule arena_push_all_gather(const Call& call) {
  Schedule steps;
  steps.wait_for_all();
  for (const Place& place : all_outputs(call, static_cast<std::size_t>(call.rank) * call.elements)) {
    steps.copy({Space::input, call.rank, 0}, place, call.elements);
  }
  steps.wait_for_all();
  return steps;
}

}  // namespace lockstep
