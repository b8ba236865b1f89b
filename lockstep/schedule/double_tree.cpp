// double_tree: long all_reduces among many ranks. A binary tree leaves half of its ranks, the leaves, without
// work; so each half of the buffer has a tree of its own, and a rank that is a leaf in one has children in
// the other. Sums go up to the root, segment by segment, and results come down while later segments still
// go up.
//
//   first tree      0            second tree (ranks counted from the other end, or shifted by one)
//                   |                 3
//                   2                 |
//                  / \                1
//                 1   3              / \            four ranks
//                                   2   0
//
// About 3 log2 p rounds where nothing is cut, for a rank goes up in the second tree only after the first; 2n
// bytes a link: the bandwidth of a ring with the latency of a tree. A result is made on one rank and copied.
// Halves are rounded at every level.
// Source: Sanders, Speck & Traeff 2009 (two-tree algorithms).
#include <bit>
#include <vector>

#include "lockstep/schedule/algorithms.h"
#include "lockstep/schedule/messages.h"

namespace lockstep::schedule {
namespace {

struct Node {
  int parent = -1;
  std::vector<int> children;
};

/// In-order binary tree on 0 ... ranks-1: the deeper a number, the lower its lowest set bit; 0 is the root.
/// Odd numbers are leaves.
int parent_of(int number, int ranks) {
  if (number == 0) return -1;
  const int bit = number & -number;
  const int upper = (number ^ bit) | (bit << 1);
  return upper < ranks ? upper : number ^ bit;
}

Node node_of(int number, int ranks) {
  Node node{.parent = parent_of(number, ranks), .children = {}};
  for (int other = 0; other < ranks; ++other) {
    if (other != number && parent_of(other, ranks) == number) node.children.push_back(other);
  }
  return node;
}

/// Numbers of the second tree: a leaf of the first has an even number, so it may have children there.
int second_number(int rank, int ranks) {
  return ranks % 2 == 0 ? ranks - 1 - rank : wrapped(rank - 1, ranks);
}
int second_rank(int number, int ranks) {
  return ranks % 2 == 0 ? ranks - 1 - number : wrapped(number + 1, ranks);
}

Node first_tree(const Call& call) { return node_of(call.rank, call.ranks); }

Node second_tree(const Call& call) {
  Node node = node_of(second_number(call.rank, call.ranks), call.ranks);
  if (node.parent >= 0) node.parent = second_rank(node.parent, call.ranks);
  for (int& child : node.children) child = second_rank(child, call.ranks);
  return node;
}

struct Half {
  Node node;
  std::vector<Range> segments;
  std::vector<Place> landing = {};
  Posted up = {};  ///< by segment
};

void send_up(Schedule& steps, const Call& call, Half& half, std::size_t index) {
  const Range segment = half.segments[index];
  std::vector<Place> sources{input_at(call, segment.begin)};
  Posted arriving;
  for (std::size_t child = 0; child < half.node.children.size(); ++child) {
    arriving.push_back(steps.receive(half.node.children[child], half.landing[child], segment.count));
    sources.push_back(half.landing[child]);
  }
  wait_for(steps, arriving);
  const Place sum = output_at(call, segment.begin);
  const bool is_root = half.node.parent < 0;
  if (sources.size() > 1) steps.reduce(sources, std::span(&sum, 1), segment.count, is_root);
  if (!is_root) {
    half.up.push_back(steps.send(half.node.parent, sources.size() > 1 ? sum : sources[0], segment.count));
  }
}

void send_down(Schedule& steps, const Call& call, Half& half, std::size_t index, Posted& sends) {
  const Range segment = half.segments[index];
  const Place result = output_at(call, segment.begin);
  if (half.node.parent >= 0) {
    steps.wait(half.up[index]);  // the result lands where the sum was
    steps.wait(steps.receive(half.node.parent, result, segment.count));
  }
  for (const int child : half.node.children) sends.push_back(steps.send(child, result, segment.count));
}

}  // namespace

Schedule double_tree_all_reduce(const Call& call) {
  Schedule steps;
  if (call.ranks == 1) {
    steps.copy(input_at(call, 0), output_at(call, 0), call.elements);
    return steps;
  }
  Half halves[] = {
      {first_tree(call), segments_of(chunk_of(call.elements, 0, 2), call.segment_elements)},
      {second_tree(call), segments_of(chunk_of(call.elements, 1, 2), call.segment_elements)},
  };
  for (Half& half : halves) {
    const std::size_t largest = half.segments.empty() ? 0 : half.segments[0].count;
    for (std::size_t child = 0; child < half.node.children.size(); ++child) {
      half.landing.push_back(steps.scratch(call.rank, largest));
    }
  }
  // Results follow sums at a distance at which they have had time to come back.
  const auto lag =
      std::size_t{2} * static_cast<std::size_t>(std::bit_width(static_cast<unsigned>(call.ranks)));
  const std::size_t most = std::max(halves[0].segments.size(), halves[1].segments.size());
  Posted sends;
  for (std::size_t index = 0; index < most + lag; ++index) {
    for (Half& half : halves) {
      if (index < half.segments.size()) send_up(steps, call, half, index);
    }
    for (Half& half : halves) {
      if (index >= lag && index - lag < half.segments.size()) {
        send_down(steps, call, half, index - lag, sends);
      }
    }
  }
  wait_for(steps, sends);
  return steps;
}

}  // namespace lockstep::schedule
