// numa: inside a host of several memory nodes, buffers in the arenas. What comes from another node's memory,
// or goes there, does so once for each node, and not once for each of its ranks. Ranks are numbered node by
// node (Call::ranks_per_node); those with the same number in their nodes are partners.
//
// An all_reduce, two nodes of two ranks:
//
//            chunk 0   chunk 1
//   rank 0    R a       .        R: adds up the node's inputs, into its own output;
//   rank 1    .         R b      then of each chunk every partner adds up a part of all nodes' sums and
//   rank 2    R c       .        writes it to all of them: rank 0 half of a + c, rank 2 the other half;
//   rank 3    .         R d      then each rank copies the node's other chunks
//
// Between nodes an all_reduce moves 2(N-1)n bytes on N nodes, the arena's 2(N-1)n times the ranks of a node.
// A node's ranks are added first: for sums of floats other roundings than the arena's, which adds rank by
// rank. Halves would be rounded once for each node and once more; calls of theirs are never given to it.
// Source: hierarchical collectives (Karonis et al. 2000), with a node's ranks sharing what crosses (Li,
// Hoefler & Snir 2013).
#include <vector>

#include "lockstep/schedule/algorithms.h"

namespace lockstep::schedule {
namespace {

/// Where this rank is among the nodes. Without nodes, all ranks are on one.
struct Nodes {
  explicit Nodes(const Call& call)
      : ranks(call.ranks_per_node > 0 ? call.ranks_per_node : call.ranks),
        count(call.ranks / ranks),
        mine(call.rank / ranks),
        place(call.rank % ranks) {}

  int rank_at(int node, int place_there) const { return node * ranks + place_there; }

  /// One place in each of the node's ranks' memory.
  std::vector<Place> of_my_node(Space space, std::size_t offset) const {
    std::vector<Place> places;
    for (int other = 0; other < ranks; ++other) places.push_back({space, rank_at(mine, other), offset});
    return places;
  }
  /// One in each partner's.
  std::vector<Place> of_my_partners(Space space, std::size_t offset) const {
    std::vector<Place> places;
    for (int node = 0; node < count; ++node) places.push_back({space, rank_at(node, place), offset});
    return places;
  }

  int ranks;  ///< of each node
  int count;
  int mine;
  int place;  ///< of this rank in its node
};

/// Each chunk of the buffer is whole in the output of the node's rank of that number: the others take it.
void share_chunks(Schedule& steps, const Call& call, const Nodes& nodes) {
  for (int step = 1; step < nodes.ranks; ++step) {
    const int place = wrapped(nodes.place + step, nodes.ranks);
    const Range chunk = chunk_of(call.elements, place, nodes.ranks);
    steps.copy({Space::output, nodes.rank_at(nodes.mine, place), chunk.begin},
               {Space::output, call.rank, chunk.begin}, chunk.count);
  }
}

}  // namespace

Schedule numa_all_reduce(const Call& call) {
  Schedule steps;
  const Nodes nodes(call);
  const Range chunk = chunk_of(call.elements, nodes.place, nodes.ranks);
  const Place mine{Space::output, call.rank, chunk.begin};
  steps.wait_for_all();
  steps.reduce(nodes.of_my_node(Space::input, chunk.begin), std::span(&mine, 1), chunk.count,
               nodes.count == 1);
  steps.wait_for_all();
  if (nodes.count > 1) {
    const Range part = chunk_of(chunk.count, nodes.mine, nodes.count);
    const auto everywhere = nodes.of_my_partners(Space::output, chunk.begin + part.begin);
    steps.reduce(everywhere, everywhere, part.count, true);
    steps.wait_for_all();
  }
  share_chunks(steps, call, nodes);
  steps.wait_for_all();
  return steps;
}

// The root's node takes all of it from the root; of every other, each rank fetches a chunk.
Schedule numa_broadcast(const Call& call) {
  Schedule steps;
  const Nodes nodes(call);
  const bool is_near = call.root / nodes.ranks == nodes.mine;
  const Range fetched = is_near ? Range{0, call.elements} : chunk_of(call.elements, nodes.place, nodes.ranks);
  steps.wait_for_all();
  if (call.rank != call.root) {
    steps.copy({Space::output, call.root, fetched.begin}, {Space::output, call.rank, fetched.begin},
               fetched.count);
  }
  steps.wait_for_all();
  if (!is_near) share_chunks(steps, call, nodes);
  steps.wait_for_all();
  return steps;
}

// Each rank fetches its partners' blocks, and takes from the node's other ranks what these have fetched.
Schedule numa_all_gather(const Call& call) {
  Schedule steps;
  const Nodes nodes(call);
  steps.wait_for_all();
  for (int step = 0; step < nodes.count; ++step) {
    const int partner = nodes.rank_at(wrapped(nodes.mine + step, nodes.count), nodes.place);
    const Range block = block_of(call, partner);
    steps.copy({Space::input, partner, 0}, {Space::output, call.rank, block.begin}, block.count);
  }
  steps.wait_for_all();
  for (int step = 1; step < nodes.ranks; ++step) {
    const int place = wrapped(nodes.place + step, nodes.ranks);
    for (int node = 0; node < nodes.count; ++node) {
      const Range block = block_of(call, nodes.rank_at(node, place));
      steps.copy({Space::output, nodes.rank_at(nodes.mine, place), block.begin},
                 {Space::output, call.rank, block.begin}, block.count);
    }
  }
  steps.wait_for_all();
  return steps;
}

}  // namespace lockstep::schedule
