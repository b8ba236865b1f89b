// tree: few rounds for small messages over channels. Ranks are numbered from the root; a rank's parent is its
// number without the lowest set bit (a binomial tree).
//
//   broadcast, root 0      round 0   round 1
//   rank 0                  -> 2      -> 1
//   rank 1                            <- 0
//   rank 2                  <- 0      -> 3
//   rank 3                            <- 2
//
// ceil(log2 p) rounds: of n bytes for broadcast and reduce; of what the subtree needs for scatter and gather.
// An all_reduce is a reduction to rank 0 and then the broadcast; a result is made on one rank and copied, so
// all ranks hold the same bits. A rank adds its children in the order of their numbers, so with root 0 the
// contributions stand in the order of ranks. Halves are rounded at every level, at most ceil(log2 p) times.
// Source: Thakur, Rabenseifner & Gropp 2005.
#include <algorithm>
#include <vector>

#include "lockstep/schedule/algorithms.h"
#include "lockstep/schedule/messages.h"

namespace lockstep::schedule {
namespace {

struct Tree {
  int number;  ///< this rank, counted from the root
  int ranks;
  int root;

  int rank_of(int other) const { return (other + root) % ranks; }
  int parent() const { return rank_of(number & (number - 1)); }
  bool is_root() const { return number == 0; }
  /// How many ranks hang below child number + bit, itself among them.
  int subtree(int bit) const { return std::min(bit, ranks - number - bit); }
  /// Bits that lead to children, the smallest subtree first.
  std::vector<int> bits() const {
    std::vector<int> result;
    const int limit = number == 0 ? ranks : number & -number;
    for (int bit = 1; bit < limit && number + bit < ranks; bit <<= 1) result.push_back(bit);
    return result;
  }
  std::vector<int> children() const {
    std::vector<int> result;
    for (const int bit : bits()) result.push_back(rank_of(number + bit));
    return result;
  }
};

Tree tree_of(const Call& call, int root) { return {wrapped(call.rank - root, call.ranks), call.ranks, root}; }

/// At least one segment, so that a message without elements is still a message: that is a barrier.
std::vector<Range> segments_of(const Call& call) {
  auto segments = schedule::segments_of(Range{0, call.elements}, call.segment_elements);
  if (segments.empty()) segments.push_back({0, 0});
  return segments;
}

void broadcast_along(Schedule& steps, const Call& call, const Tree& tree) {
  Posted arriving;
  const auto segments = segments_of(call);
  if (!tree.is_root()) {
    for (const Range segment : segments) {
      arriving.push_back(steps.receive(tree.parent(), output_at(call, segment.begin), segment.count));
    }
  }
  auto children = tree.children();
  std::reverse(children.begin(), children.end());  // the largest subtree first: it has the longest way to go
  Posted sends;
  for (std::size_t index = 0; index < segments.size(); ++index) {
    if (!tree.is_root()) steps.wait(arriving[index]);
    for (const int child : children) {
      sends.push_back(steps.send(child, output_at(call, segments[index].begin), segments[index].count));
    }
  }
  wait_for(steps, sends);
}

/// Leaves the sum at `into` (segment by segment from there on) on the root; other ranks only pass it on.
void reduce_along(Schedule& steps, const Call& call, const Tree& tree, Place into, bool keeps_all) {
  const auto children = tree.children();
  const std::size_t largest = std::min(call.segment_elements, call.elements);
  std::vector<Place> landing;
  for (std::size_t child = 0; child < children.size(); ++child) {
    landing.push_back(steps.scratch(call.rank, largest));
  }
  for (const Range segment : segments_of(call)) {
    Posted arriving;
    std::vector<Place> sources{input_at(call, segment.begin)};
    for (std::size_t child = 0; child < children.size(); ++child) {
      arriving.push_back(steps.receive(children[child], landing[child], segment.count));
      sources.push_back(landing[child]);
    }
    wait_for(steps, arriving);
    const Place sum = keeps_all ? at(into, segment.begin) : into;
    if (!children.empty()) steps.reduce(sources, std::span(&sum, 1), segment.count, tree.is_root());
    if (!tree.is_root()) {
      steps.wait(steps.send(tree.parent(), children.empty() ? sources[0] : sum, segment.count));
    }
  }
}

/// Where a rank keeps the blocks of its subtree, in the order of numbers from the root; only what lies below
/// it. The root's blocks lie in the user's buffer, in the order of ranks.
struct Blocks {
  const Call& call;
  const Tree& tree;
  Place scratch{};
  Place user{};

  Range of(int number) const { return block_of(call, tree.rank_of(number)); }
  std::size_t held_elements() const {
    std::size_t sum = 0;
    for (const int bit : tree.bits()) {
      for (int below = 0; below < tree.subtree(bit); ++below) sum += of(tree.number + bit + below).count;
    }
    return sum;
  }
  Place place(int number) const {
    if (tree.is_root()) return at(user, of(number).begin);
    std::size_t before = 0;
    for (int other = tree.number + 1; other < number; ++other) before += of(other).count;
    return at(scratch, before);
  }
};

Blocks blocks_of(Schedule& steps, const Call& call, const Tree& tree, Place user) {
  Blocks blocks{call, tree, {}, user};
  if (!tree.is_root()) blocks.scratch = steps.scratch(call.rank, blocks.held_elements());
  return blocks;
}

void append(Posted& list, const Posted& more) { list.insert(list.end(), more.begin(), more.end()); }

}  // namespace

Schedule tree_broadcast(const Call& call) {
  Schedule steps;
  broadcast_along(steps, call, tree_of(call, call.root));
  return steps;
}

Schedule tree_all_reduce(const Call& call) {
  Schedule steps;
  const Tree tree = tree_of(call, 0);
  if (call.ranks == 1) steps.copy(input_at(call, 0), output_at(call, 0), call.elements);
  reduce_along(steps, call, tree, output_at(call, 0), true);
  broadcast_along(steps, call, tree);
  return steps;
}

// In the order of ranks the tree's root is rank 0, which hands the sum to the root.
Schedule tree_reduce(const Call& call) {
  Schedule steps;
  const Tree tree = tree_of(call, call.keeps_order ? 0 : call.root);
  const bool is_root = call.rank == call.root;
  if (call.ranks == 1) steps.copy(input_at(call, 0), output_at(call, 0), call.elements);
  const bool hands_over = tree.is_root() && !is_root;
  const Place into = tree.is_root() && is_root ? output_at(call, 0)
                     : hands_over              ? steps.scratch(call.rank, call.elements)
                                  : steps.scratch(call.rank, std::min(call.segment_elements, call.elements));
  reduce_along(steps, call, tree, into, tree.is_root());
  if (hands_over) wait_for(steps, send_all(steps, call, call.root, into, call.elements));
  if (is_root && !tree.is_root()) {
    wait_for(steps, receive_all(steps, call, tree.root, output_at(call, 0), call.elements));
  }
  return steps;
}

Schedule tree_scatter(const Call& call) {
  Schedule steps;
  const Tree tree = tree_of(call, call.root);
  const Blocks blocks = blocks_of(steps, call, tree, input_at(call, 0));
  const std::size_t mine = block_of(call, call.rank).count;
  std::vector<Posted> arriving;
  Posted own;
  if (tree.is_root()) {
    steps.copy(blocks.place(0), output_at(call, 0), mine);
  } else {
    own = receive_all(steps, call, tree.parent(), output_at(call, 0), mine);
    for (int below = 1; below < (tree.number & -tree.number) && tree.number + below < tree.ranks; ++below) {
      const int number = tree.number + below;
      arriving.push_back(
          receive_all(steps, call, tree.parent(), blocks.place(number), blocks.of(number).count));
    }
  }
  Posted sends;
  auto bits = tree.bits();
  std::reverse(bits.begin(), bits.end());
  for (const int bit : bits) {
    for (int below = 0; below < tree.subtree(bit); ++below) {
      const int number = tree.number + bit + below;
      if (!tree.is_root()) wait_for(steps, arriving[static_cast<std::size_t>(bit + below - 1)]);
      append(sends, send_all(steps, call, tree.rank_of(tree.number + bit), blocks.place(number),
                             blocks.of(number).count));
    }
  }
  wait_for(steps, own);
  wait_for(steps, sends);
  return steps;
}

Schedule tree_gather(const Call& call) {
  Schedule steps;
  const Tree tree = tree_of(call, call.root);
  const Blocks blocks = blocks_of(steps, call, tree, output_at(call, 0));
  const std::size_t mine = block_of(call, call.rank).count;
  if (tree.is_root()) steps.copy(input_at(call, 0), blocks.place(0), mine);
  std::vector<Posted> arriving;
  for (const int bit : tree.bits()) {
    for (int below = 0; below < tree.subtree(bit); ++below) {
      const int number = tree.number + bit + below;
      arriving.push_back(receive_all(steps, call, tree.rank_of(tree.number + bit), blocks.place(number),
                                     blocks.of(number).count));
    }
  }
  Posted sends;
  if (!tree.is_root()) sends = send_all(steps, call, tree.parent(), input_at(call, 0), mine);
  for (std::size_t below = 0; below < arriving.size(); ++below) {
    wait_for(steps, arriving[below]);
    if (tree.is_root()) continue;
    const int number = tree.number + 1 + static_cast<int>(below);
    append(sends, send_all(steps, call, tree.parent(), blocks.place(number), blocks.of(number).count));
  }
  wait_for(steps, sends);
  return steps;
}

}  // namespace lockstep::schedule
