#include "lockstep/group/reproducible.h"

#include <cstring>
#include <numeric>
#include <optional>

#include "lockstep/base/error.h"
#include "lockstep/kernel/reduce.h"
#include "lockstep/schedule/call.h"

namespace lockstep {
namespace {

bool is_half(Dtype dtype) { return dtype == Dtype::f16 || dtype == Dtype::bf16; }
/// In what sums grow.
Dtype wide(Dtype dtype) { return is_half(dtype) ? Dtype::f32 : dtype; }

std::vector<std::byte> widen(Dtype dtype, std::span<const std::byte> from) {
  std::vector<std::byte> made(from.size() / size_of(dtype) * size_of(wide(dtype)));
  if (!is_half(dtype)) {
    if (!from.empty()) std::memcpy(made.data(), from.data(), from.size());
    return made;
  }
  for (std::size_t index = 0; index < from.size() / 2; ++index) {
    float value = 0;
    if (dtype == Dtype::f16) {
      float16 half;
      std::memcpy(&half, from.data() + 2 * index, 2);
      value = to_float(half);
    } else {
      bfloat16 half;
      std::memcpy(&half, from.data() + 2 * index, 2);
      value = to_float(half);
    }
    std::memcpy(made.data() + sizeof(float) * index, &value, sizeof(float));
  }
  return made;
}

void narrow(Dtype dtype, std::span<const std::byte> from, std::span<std::byte> into) {
  if (!is_half(dtype)) {
    if (!from.empty()) std::memcpy(into.data(), from.data(), from.size());
    return;
  }
  for (std::size_t index = 0; index < into.size() / 2; ++index) {
    float value = 0;
    std::memcpy(&value, from.data() + sizeof(float) * index, sizeof(float));
    if (dtype == Dtype::f16) {
      const float16 half = to_float16(value);
      std::memcpy(into.data() + 2 * index, &half, 2);
    } else {
      const bfloat16 half = to_bfloat16(value);
      std::memcpy(into.data() + 2 * index, &half, 2);
    }
  }
}

/// Nodes of the tree, from the left, that could not be added up yet. Node `number` of `level` stands for the
/// contributions from number * 2^level on, 2^level of them or as many as there are.
class Tree {
 public:
  struct Node {
    int level;
    std::uint64_t number;
    std::vector<std::byte> sum;
  };

  /// `dtype`: of sums; nullopt where nothing is added, and only the nodes are wanted.
  Tree(std::uint64_t contributions, std::optional<Dtype> dtype) : total_(contributions), dtype_(dtype) {}

  /// REQUIRES: it lies to the right of all others.
  void push(Node node) {
    while (!is_root(node)) {
      if (node.number % 2 == 1) {
        const bool is_sibling_here =
            !nodes_.empty() && nodes_.back().level == node.level && nodes_.back().number + 1 == node.number;
        if (!is_sibling_here) break;
        add(nodes_.back().sum, node.sum);
        node.sum = std::move(nodes_.back().sum);
        nodes_.pop_back();
      } else if (((node.number + 1) << node.level) < total_) {
        break;  // its right sibling is still to come
      }
      ++node.level;
      node.number /= 2;
    }
    nodes_.push_back(std::move(node));
  }

  std::vector<Node>& nodes() { return nodes_; }

 private:
  bool is_root(const Node& node) const {
    return node.number == 0 && (std::uint64_t{1} << node.level) >= total_;
  }

  void add(std::vector<std::byte>& left, const std::vector<std::byte>& right) const {
    if (!dtype_) return;
    const std::byte* sources[] = {left.data(), right.data()};
    std::byte* destination = left.data();
    reduce(*dtype_, ReduceOp::sum, left.size() / size_of(*dtype_), sources, std::span(&destination, 1));
  }

  std::uint64_t total_;
  std::optional<Dtype> dtype_;
  std::vector<Node> nodes_;
};

/// The nodes that are left on a rank with contributions [first, first + count) of `total`.
std::vector<Tree::Node> nodes_of(std::uint64_t first, std::uint64_t count, std::uint64_t total) {
  Tree tree(total, std::nullopt);
  for (std::uint64_t index = first; index < first + count; ++index) tree.push({0, index, {}});
  return std::move(tree.nodes());
}

void require_sense(const std::vector<std::span<const std::byte>>& inputs, std::span<const std::byte> output,
                   Dtype dtype, ReduceOp op) {
  if (op != ReduceOp::sum && op != ReduceOp::average) {
    throw_invalid_argument("reproducible_all_reduce: sums and averages only, not " +
                           std::string(to_string(op)));
  }
  if (!supports(dtype, op)) {
    throw_invalid_argument("reproducible_all_reduce: " + std::string(to_string(op)) + " is not defined for " +
                           std::string(to_string(dtype)));
  }
  for (std::size_t index = 0; index < inputs.size(); ++index) {
    if (inputs[index].size() != output.size()) {
      throw_invalid_argument("reproducible_all_reduce: input " + std::to_string(index) + " has " +
                             std::to_string(inputs[index].size()) + " bytes, the output " +
                             std::to_string(output.size()));
    }
  }
}

}  // namespace

void reproducible_all_reduce_bytes(const Group& group, const std::vector<std::span<const std::byte>>& inputs,
                                   std::span<std::byte> output, Dtype dtype, ReduceOp op) {
  require_sense(inputs, output, dtype, op);
  const auto ranks = static_cast<std::size_t>(group.size());
  const auto me = static_cast<std::size_t>(group.rank());
  const std::uint64_t mine = inputs.size();
  std::vector<std::uint64_t> counts(ranks);
  all_gather(group, std::span(&mine, 1), counts).wait();
  const std::uint64_t total = std::accumulate(counts.begin(), counts.end(), std::uint64_t{0});
  const std::uint64_t first =
      std::accumulate(counts.begin(), counts.begin() + group.rank(), std::uint64_t{0});
  if (total == 0) throw_invalid_argument("reproducible_all_reduce: no rank has an input");

  Tree own(total, wide(dtype));
  for (std::uint64_t index = 0; index < mine; ++index) {
    own.push({0, first + index, widen(dtype, inputs[index])});
  }

  // To each owner its chunk of our nodes, one after the other.
  const std::size_t elements = output.size() / size_of(dtype);
  const std::size_t element_bytes = size_of(wide(dtype));
  const auto chunk = [&](std::size_t rank) {
    return chunk_of(elements, static_cast<int>(rank), group.size());
  };
  std::vector<std::vector<Tree::Node>> nodes;
  std::vector<std::size_t> sent, received;
  for (std::size_t rank = 0, begin = 0; rank < ranks; begin += counts[rank++]) {
    nodes.push_back(nodes_of(begin, counts[rank], total));
    sent.push_back(own.nodes().size() * chunk(rank).count);
    received.push_back(nodes.back().size() * chunk(me).count);
  }
  std::vector<std::byte> leaving,
      arriving(std::accumulate(received.begin(), received.end(), std::size_t{0}) * element_bytes);
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    for (const Tree::Node& node : own.nodes()) {
      const auto part =
          std::span(node.sum).subspan(chunk(rank).begin * element_bytes, chunk(rank).count * element_bytes);
      leaving.insert(leaving.end(), part.begin(), part.end());
    }
  }
  all_to_all_v_bytes(group, leaving, sent, arriving, received, element_bytes).wait();

  Tree rest(total, wide(dtype));
  const std::size_t chunk_bytes = chunk(me).count * element_bytes;
  auto position = arriving.begin();
  for (const auto& of_rank : nodes) {
    for (const Tree::Node& node : of_rank) {
      const auto end = position + static_cast<std::ptrdiff_t>(chunk_bytes);
      rest.push({node.level, node.number, std::vector<std::byte>(position, end)});
      position = end;
    }
  }
  std::vector<std::byte>& sum = rest.nodes().front().sum;
  if (op == ReduceOp::average) {
    const std::byte* source = sum.data();
    std::byte* destination = sum.data();
    reduce(wide(dtype), ReduceOp::sum, chunk(me).count, std::span(&source, 1), std::span(&destination, 1),
           1.0 / static_cast<double>(total));
  }
  std::vector<std::size_t> chunks;
  for (std::size_t rank = 0; rank < ranks; ++rank) chunks.push_back(chunk(rank).count);
  const auto own_chunk = output.subspan(chunk(me).begin * size_of(dtype), chunk(me).count * size_of(dtype));
  narrow(dtype, sum, own_chunk);
  all_gather_bytes(group, own_chunk, output, size_of(dtype), chunks).wait();
}

}  // namespace lockstep
