// binomial_tree: few rounds for small messages over channels. Ranks are numbered from the root; a rank's
// parent is its number without the lowest set bit.
//
//   broadcast, root 0      round 0   round 1
//   rank 0                  -> 2      -> 1
//   rank 1                            <- 0
//   rank 2                  <- 0      -> 3
//   rank 3                            <- 2
//
// ceil(log2 p) rounds of n bytes. An all-reduce is a reduction to rank 0 along the same tree, backwards, and
// then the broadcast; a result is made on one rank and copied, so all ranks hold the same bits. Halves are
// rounded at every level, at most ceil(log2 p) times. Source: Thakur, Rabenseifner & Gropp 2005.
#include <algorithm>
#include <vector>

#include "lockstep/schedule/algorithms.h"

namespace lockstep {
namespace {

struct Tree {
  int number;  ///< this rank, counted from the root
  int ranks;
  int root;

  int rank_of(int other) const { return (other + root) % ranks; }
  int parent() const { return rank_of(number & (number - 1)); }
  /// Largest subtree first: it has the longest way to go.
  std::vector<int> children() const {
    std::vector<int> result;
    const int limit = number == 0 ? ranks : number & -number;
    int bit = 1;
    while (bit < limit && number + bit < ranks) bit <<= 1;
    for (bit >>= 1; bit > 0; bit >>= 1) result.push_back(rank_of(number + bit));
    return result;
  }
};

Tree tree_of(const Call& call, int root) {
  return {(call.rank - root + call.ranks) % call.ranks, call.ranks, root};
}

/// At least one segment, so that a message without elements is still a message: that is a barrier.
std::vector<Range> segments_of(const Call& call) {
  std::vector<Range> segments;
  std::size_t begin = 0;
  do {
    segments.push_back({begin, std::min(call.segment_elements, call.elements - begin)});
    begin += call.segment_elements;
  } while (begin < call.elements);
  return segments;
}

void broadcast_along(Schedule& steps, const Call& call, const Tree& tree) {
  std::vector<Schedule::StepIndex> arriving;
  const auto segments = segments_of(call);
  if (tree.number != 0) {
    for (const Range segment : segments) {
      arriving.push_back(
          steps.receive(tree.parent(), {Space::output, call.rank, segment.begin}, segment.count));
    }
  }
  std::vector<Schedule::StepIndex> sends;
  for (std::size_t index = 0; index < segments.size(); ++index) {
    if (tree.number != 0) steps.wait(arriving[index]);
    const Place place{Space::output, call.rank, segments[index].begin};
    for (const int child : tree.children()) sends.push_back(steps.send(child, place, segments[index].count));
  }
  for (const auto send : sends) steps.wait(send);
}

void reduce_along(Schedule& steps, const Call& call, const Tree& tree) {
  const auto children = tree.children();
  std::vector<Place> landing;
  for (std::size_t child = 0; child < children.size(); ++child) {
    landing.push_back(steps.scratch(call.rank, std::min(call.segment_elements, call.elements)));
  }
  for (const Range segment : segments_of(call)) {
    std::vector<Schedule::StepIndex> arriving;
    std::vector<Place> sources{{Space::output, call.rank, segment.begin}};
    for (std::size_t child = 0; child < children.size(); ++child) {
      arriving.push_back(steps.receive(children[child], landing[child], segment.count));
      sources.push_back(landing[child]);
    }
    for (const auto receive : arriving) steps.wait(receive);
    const Place mine = sources.front();
    if (!children.empty()) steps.reduce(sources, std::span(&mine, 1), segment.count, tree.number == 0);
    if (tree.number != 0) steps.wait(steps.send(tree.parent(), mine, segment.count));
  }
}

}  // namespace

Schedule tree_broadcast(const Call& call) {
  Schedule steps;
  broadcast_along(steps, call, tree_of(call, call.root));
  return steps;
}

Schedule tree_all_reduce(const Call& call) {
  Schedule steps;
  const Tree tree = tree_of(call, 0);
  reduce_along(steps, call, tree);
  broadcast_along(steps, call, tree);
  return steps;
}

}  // namespace lockstep
