#include "lockstep/group/reproducible.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/per_rank.h"
#include "lockstep/group/impl.h"
#include "lockstep/kernel/reduce.h"
#include "lockstep/schedule/call.h"

namespace lockstep {
namespace {

/// The type in which sums are added up: halves are added in f32, so that they are rounded once.
Dtype wide(Dtype dtype) { return is_half(dtype) ? Dtype::f32 : dtype; }

void widen(Dtype dtype, std::span<const std::byte> from, std::span<std::byte> into) {
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
    std::memcpy(into.data() + sizeof(float) * index, &value, sizeof(float));
  }
}

void narrow(Dtype dtype, std::span<const std::byte> from, std::span<std::byte> into) {
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

/// The group's spare memory, which its calls have in common.
class Spare {
 public:
  explicit Spare(Group::Impl& impl) : impl_(impl) {}
  std::vector<std::byte> take(std::size_t bytes) const {
    const std::lock_guard lock(impl_.mutex);
    return impl_.spare_memory.take(bytes);
  }
  void give(std::vector<std::byte> memory) const {
    const std::lock_guard lock(impl_.mutex);
    impl_.spare_memory.give(std::move(memory));
  }

 private:
  Group::Impl& impl_;
};

/// A sum of contributions, or one of them: in memory of its own or somebody else's.
struct Sum {
  const std::byte* data = nullptr;
  std::vector<std::byte> own = {};
};

/// Nodes of the tree, from the left, that could not be added up yet. Node `number` of `level` stands for the
/// contributions from number * 2^level on, 2^level of them or as many as there are.
class Tree {
 public:
  struct Node {
    int level;
    std::uint64_t number;
    Sum sum = {};
  };

  /// Sums of so many elements of `dtype`. Borrows `spare`, memory for them.
  Tree(std::uint64_t contributions, Dtype dtype, std::size_t elements, const Spare& spare)
      : total_(contributions), dtype_(dtype), elements_(elements), spare_(&spare) {}
  /// Where nothing is added, and only the nodes are wanted.
  explicit Tree(std::uint64_t contributions) : total_(contributions) {}

  /// REQUIRES: it lies to the right of all others.
  void push(Node node) {
    while (!is_root(node)) {
      if (node.number % 2 == 1) {
        const bool is_sibling_here =
            !nodes_.empty() && nodes_.back().level == node.level && nodes_.back().number + 1 == node.number;
        if (!is_sibling_here) break;
        node.sum = add(std::move(nodes_.back().sum), std::move(node.sum));
        nodes_.pop_back();
      } else if (((node.number + 1) << node.level) < total_) {
        break;  // its right sibling is still to come
      }
      ++node.level;
      node.number /= 2;
    }
    nodes_.push_back(std::move(node));
  }

  const std::vector<Node>& nodes() const { return nodes_; }
  void clear() {
    for (Node& node : nodes_) spare_->give(std::move(node.sum.own));
    nodes_.clear();
  }

 private:
  bool is_root(const Node& node) const {
    return node.number == 0 && (std::uint64_t{1} << node.level) >= total_;
  }

  Sum add(Sum left, Sum right) const {
    if (spare_ == nullptr) return {};
    std::vector<std::byte> into = !left.own.empty()    ? std::move(left.own)
                                  : !right.own.empty() ? std::move(right.own)
                                                       : spare_->take(elements_ * size_of(dtype_));
    const std::byte* sources[] = {left.data, right.data};
    std::byte* destination = into.data();
    kernel::reduce(dtype_, ReduceOp::sum, elements_, sources, std::span(&destination, 1));
    spare_->give(std::move(left.own));
    spare_->give(std::move(right.own));
    return {destination, std::move(into)};
  }

  std::uint64_t total_;
  Dtype dtype_ = {};
  std::size_t elements_ = 0;
  const Spare* spare_ = nullptr;
  std::vector<Node> nodes_;
};

/// What all ranks have to call alike, but for the number of contributions.
struct Called {
  std::uint64_t contributions = 0;
  std::uint64_t elements = 0;
  Dtype dtype = {};
  ReduceOp op = {};
  std::uint64_t first = 0, total = 0;  ///< as a ReproducibleSum was told

  bool fits(const Called& other) const {
    return elements == other.elements && dtype == other.dtype && op == other.op;
  }
  std::string text() const {
    return "reproducible_all_reduce (" + std::string(to_string(op)) + " of " + std::string(to_string(dtype)) +
           " x " + std::to_string(elements) + ")";
  }
};

/// Everybody's, by rank. All ranks find the same difference.
PerRank<Called> exchange(const Group& group, const Called& mine) {
  PerRank<Called> all(group.size());
  all_gather(group, std::span(&mine, 1), all).wait();
  const int odd = all.find_if([&](const Called& called) { return !called.fits(all[0]); });
  if (odd == all.size()) return all;
  const auto one = [&](int rank) {
    return "rank " + std::to_string(group.world_rank(rank)) + " called " + all[rank].text();
  };
  throw Error(ErrorCode::mismatch, "ranks called different operations: " + one(0) + ", " + one(odd));
}

/// The nodes that are left on a rank with contributions [first, first + count) of `total`.
std::vector<Tree::Node> nodes_of(std::uint64_t first, std::uint64_t count, std::uint64_t total) {
  Tree tree(total);
  for (std::uint64_t index = first; index < first + count; ++index) tree.push({0, index});
  return tree.nodes();
}

void require_sums(Dtype dtype, ReduceOp op) {
  if (op != ReduceOp::sum && op != ReduceOp::average) {
    throw_invalid_argument("reproducible_all_reduce: sums and averages only, not " +
                           std::string(to_string(op)));
  }
  if (!kernel::supports(dtype, op)) {
    throw_invalid_argument("reproducible_all_reduce: " + std::string(to_string(op)) + " is not defined for " +
                           std::string(to_string(dtype)));
  }
}

void require_sense(const std::vector<std::span<const std::byte>>& inputs, std::span<const std::byte> output,
                   Dtype dtype, ReduceOp op) {
  require_sums(dtype, op);
  for (std::size_t index = 0; index < inputs.size(); ++index) {
    if (inputs[index].size() != output.size()) {
      throw_invalid_argument("reproducible_all_reduce: input " + std::to_string(index) + " has " +
                             std::to_string(inputs[index].size()) + " bytes, the output " +
                             std::to_string(output.size()));
    }
  }
}

/// Where each rank's contributions begin, and how many there are.
struct Contributions {
  std::vector<std::uint64_t> first = {}, count = {};
  std::uint64_t total = 0;

  explicit Contributions(const PerRank<Called>& all) {
    for (const Called& called : all) {
      first.push_back(total);
      count.push_back(called.contributions);
      total += called.contributions;
    }
  }
};

/// Collective: adds up what the ranks' trees could not, and spreads the result. Drops `own`.
void finish(const Group& group, Tree& own, const Contributions& all, std::span<std::byte> output, Dtype dtype,
            ReduceOp op, const Spare& spare) {
  const auto ranks = static_cast<std::size_t>(group.size());
  const auto me = static_cast<std::size_t>(group.rank());
  const std::size_t elements = output.size() / size_of(dtype);
  const std::size_t element_bytes = size_of(wide(dtype));
  std::vector<std::size_t> chunks;
  for (std::size_t rank = 0; rank < ranks; ++rank)
    chunks.push_back(schedule::chunk_of(elements, static_cast<int>(rank), group.size()).count);
  const std::size_t own_elements = chunks[me];
  const std::size_t own_bytes = own_elements * element_bytes;

  // To each owner its chunk of our nodes: of the first node of each rank, then of the second, ...
  std::vector<std::vector<Tree::Node>> nodes;
  std::size_t most_nodes = 0;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    nodes.push_back(nodes_of(all.first[rank], all.count[rank], all.total));
    most_nodes = std::max(most_nodes, nodes.back().size());
  }
  std::vector<std::vector<std::byte>> arrived;
  for (std::size_t node = 0; node < most_nodes; ++node) {
    const auto has_it = [&](const auto& of_rank) { return node < of_rank.size(); };
    arrived.push_back(spare.take(static_cast<std::size_t>(std::ranges::count_if(nodes, has_it)) * own_bytes));
    const std::byte* position = arrived.back().data();
    std::vector<std::size_t> sent(ranks), received(ranks);
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      if (!has_it(nodes[rank])) continue;
      received[rank] = own_elements;
      nodes[rank][node].sum.data = position;
      position += own_bytes;
    }
    std::span<const std::byte> leaving;
    if (has_it(own.nodes())) {
      sent = chunks;
      leaving = {own.nodes()[node].sum.data, elements * element_bytes};
    }
    all_to_all_v_bytes(group, leaving, sent, arrived.back(), received, element_bytes).wait();
  }
  own.clear();

  Tree rest(all.total, wide(dtype), own_elements, spare);
  for (auto& of_rank : nodes) {
    for (Tree::Node& node : of_rank) rest.push(std::move(node));
  }
  const std::size_t own_begin = schedule::chunk_of(elements, group.rank(), group.size()).begin;
  const auto own_chunk = output.subspan(own_begin * size_of(dtype), own_elements * size_of(dtype));
  auto scaled = spare.take(is_half(dtype) ? own_bytes : 0);
  const std::byte* sum = rest.nodes().front().sum.data;
  std::byte* destination = is_half(dtype) ? scaled.data() : own_chunk.data();
  kernel::reduce(wide(dtype), ReduceOp::sum, own_elements, std::span(&sum, 1), std::span(&destination, 1),
                 op == ReduceOp::average ? 1.0 / static_cast<double>(all.total) : 1.0);
  if (is_half(dtype)) narrow(dtype, scaled, own_chunk);
  spare.give(std::move(scaled));
  for (auto& memory : arrived) spare.give(std::move(memory));
  rest.clear();
  all_gather_bytes(group, own_chunk, output, size_of(dtype), chunks).wait();
}

}  // namespace

void reproducible_all_reduce_bytes(const Group& group, const std::vector<std::span<const std::byte>>& inputs,
                                   std::span<std::byte> output, Dtype dtype, ReduceOp op) {
  require_sense(inputs, output, dtype, op);
  const std::size_t elements = output.size() / size_of(dtype);
  const Contributions all(exchange(group, {inputs.size(), elements, dtype, op}));
  if (all.total == 0) throw_invalid_argument("reproducible_all_reduce: no rank has an input");
  const std::uint64_t first = all.first[static_cast<std::size_t>(group.rank())];

  const Spare spare(group.impl());
  Tree own(all.total, wide(dtype), elements, spare);
  for (std::uint64_t index = 0; index < inputs.size(); ++index) {
    Sum leaf{inputs[index].data()};
    if (is_half(dtype)) {
      leaf.own = spare.take(elements * size_of(wide(dtype)));
      leaf.data = leaf.own.data();
      widen(dtype, inputs[index], leaf.own);
    }
    own.push({0, first + index, std::move(leaf)});
  }
  finish(group, own, all, output, dtype, op, spare);
}

class ReproducibleSum::Impl {
 public:
  Impl(Group group, Dtype dtype, std::size_t elements, std::uint64_t first, std::uint64_t total)
      : group_(std::move(group)),
        dtype_(dtype),
        elements_(elements),
        first_(first),
        total_(total),
        spare_(group_.impl()),
        own_(total, wide(dtype), elements, spare_) {
    require_sums(dtype, ReduceOp::sum);
    if (total == 0) throw_invalid_argument("ReproducibleSum: a sum of nothing");
  }

  ~Impl() {
    own_.clear();
    spare_.give(std::move(next_));
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  std::span<std::byte> next() {
    if (next_.empty()) next_ = spare_.take(elements_ * size_of(dtype_));
    return next_;
  }

  void add() {
    (void)next();
    std::vector<std::byte> memory = std::exchange(next_, {});
    if (is_half(dtype_)) {
      auto wider = spare_.take(elements_ * size_of(wide(dtype_)));
      widen(dtype_, memory, wider);
      spare_.give(std::exchange(memory, std::move(wider)));
    }
    const std::byte* data = memory.data();
    own_.push({0, first_ + count_++, Sum{data, std::move(memory)}});
  }

  void all_reduce(std::span<std::byte> output, ReduceOp op) {
    require_sums(dtype_, op);
    if (output.size() != elements_ * size_of(dtype_)) {
      throw_invalid_argument("ReproducibleSum: the output has " + std::to_string(output.size()) +
                             " bytes, the contributions have " + std::to_string(elements_ * size_of(dtype_)));
    }
    const auto called = exchange(group_, {count_, elements_, dtype_, op, first_, total_});
    const Contributions all(called);
    require_as_told(called, all);
    finish(group_, own_, all, output, dtype_, op, spare_);
    count_ = 0;
  }

 private:
  /// All ranks find the same.
  void require_as_told(const PerRank<Called>& called, const Contributions& all) const {
    for (int rank = 0; rank < called.size(); ++rank) {
      const Called& one = called[rank];
      const std::uint64_t first = all.first[static_cast<std::size_t>(rank)];
      if (one.total == all.total && (one.contributions == 0 || one.first == first)) continue;
      throw_invalid_argument("ReproducibleSum: rank " + std::to_string(group_.world_rank(rank)) +
                             " was to have " + std::to_string(one.contributions) + " contributions from " +
                             std::to_string(one.first) + " on, of " + std::to_string(one.total) +
                             "; its first is " + std::to_string(first) + " of " + std::to_string(all.total));
    }
  }

  Group group_;
  Dtype dtype_;
  std::size_t elements_;
  std::uint64_t first_, count_ = 0, total_;
  std::vector<std::byte> next_;
  Spare spare_;
  Tree own_;
};

ReproducibleSum::ReproducibleSum(const Group& group, Dtype dtype, std::size_t elements, std::uint64_t first,
                                 std::uint64_t total)
    : impl_(std::make_unique<Impl>(group, dtype, elements, first, total)) {}
ReproducibleSum::ReproducibleSum(ReproducibleSum&&) noexcept = default;
ReproducibleSum& ReproducibleSum::operator=(ReproducibleSum&&) noexcept = default;
ReproducibleSum::~ReproducibleSum() = default;

std::span<std::byte> ReproducibleSum::next() { return impl_->next(); }
void ReproducibleSum::add() { impl_->add(); }
void ReproducibleSum::all_reduce(std::span<std::byte> output, ReduceOp op) { impl_->all_reduce(output, op); }

}  // namespace lockstep
