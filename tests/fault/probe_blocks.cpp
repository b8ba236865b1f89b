// Collectives in which each rank has a block of its own: element i of what rank `from` has for rank `to` is
// byte_of(from + to, i), or contribution(from, ...) where it is added up.
#include <numeric>

#include "probe_buffer.h"
#include "probe_shapes.h"

namespace probe {
namespace {

using lockstep::Group;
using Bytes = Buffer<unsigned char>;
using Span = std::span<unsigned char>;

/// Of the v forms: of different sizes, some empty where there are many.
std::vector<std::size_t> uneven(const Group& group, std::size_t elements) {
  std::vector<std::size_t> counts;
  for (std::size_t rank = 0; rank < static_cast<std::size_t>(group.size()); ++rank)
    counts.push_back(rank % 3 == 2 ? 0 : elements / (rank % 3 + 1));
  return counts;
}

std::vector<std::size_t> alike(const Group& group, std::size_t elements) {
  return std::vector<std::size_t>(static_cast<std::size_t>(group.size()), elements);
}

struct Blocks {
  const Group& group;
  std::vector<std::size_t> counts;
  Memory memory;

  std::size_t count(int rank) const { return counts[static_cast<std::size_t>(rank)]; }
  std::size_t mine() const { return count(group.rank()); }
  std::size_t before(int rank) const {
    return std::accumulate(counts.begin(), counts.begin() + rank, std::size_t{0});
  }
  std::size_t total() const { return before(group.size()); }
  /// A buffer of `elements` on the ranks that need it.
  Bytes bytes(std::size_t elements, bool is_needed = true) const {
    return {group, is_needed ? elements : 0, memory};
  }
  Span block(Span whole, int rank) const { return whole.subspan(before(rank), count(rank)); }
  void require_blocks(const std::string& call, Span whole) const {
    for (int rank = 0; rank < group.size(); ++rank) require_bytes_of(call, block(whole, rank), rank);
  }
};

Blocks even_blocks(const Group& group, const Shape& shape) {
  return {group, alike(group, shape.elements), shape.memory};
}
Blocks uneven_blocks(const Group& group, const Shape& shape) {
  return {group, uneven(group, shape.elements), shape.memory};
}

template <class Call>
void scatter_by(const Blocks& blocks, int root, const Call& call) {
  const Bytes input = blocks.bytes(blocks.total(), blocks.group.rank() == root);
  for (int rank = 0; rank < blocks.group.size() && blocks.group.rank() == root; ++rank)
    fill(blocks.block(input.span(), rank), rank);
  const Bytes output = blocks.bytes(blocks.mine());
  call(input.span(), output.span());
  require_bytes_of("scatter", output.span(), blocks.group.rank());
}

template <class Call>
void gather_by(const Blocks& blocks, bool gets_all, const std::string& name, const Call& call) {
  const Bytes input = blocks.bytes(blocks.mine());
  fill(input.span(), blocks.group.rank());
  const Bytes output = blocks.bytes(blocks.total(), gets_all);
  call(input.span(), output.span());
  if (gets_all) blocks.require_blocks(name, output.span());
}

template <class Call>
void reduce_scatter_by(const Blocks& blocks, const Call& call) {
  const Buffer<float> input(blocks.group, blocks.total(), blocks.memory);
  const Buffer<float> output(blocks.group, blocks.mine(), blocks.memory);
  for (std::size_t i = 0; i < blocks.total(); ++i)
    input.span()[i] = static_cast<float>(contribution(blocks.group.rank(), i));
  call(input.span(), output.span());
  const std::size_t before = blocks.before(blocks.group.rank());
  require<float>("reduce_scatter", output.span(), [&](std::size_t i) {
    return static_cast<float>(reduced(lockstep::ReduceOp::sum, blocks.group.size(), before + i));
  });
}

}  // namespace

void scatter(const Group& group, const Shape& shape) {
  scatter_by(even_blocks(group, shape), shape.root,
             [&](Span input, Span output) { lockstep::scatter(group, input, output, shape.root).wait(); });
}

void scatter_v(const Group& group, const Shape& shape) {
  const Blocks blocks = uneven_blocks(group, shape);
  scatter_by(blocks, shape.root, [&](Span input, Span output) {
    lockstep::scatter_v(group, input, blocks.counts, output, shape.root).wait();
  });
}

void gather(const Group& group, const Shape& shape) {
  gather_by(even_blocks(group, shape), group.rank() == shape.root, "gather",
            [&](Span input, Span output) { lockstep::gather(group, input, output, shape.root).wait(); });
}

void gather_v(const Group& group, const Shape& shape) {
  const Blocks blocks = uneven_blocks(group, shape);
  gather_by(blocks, group.rank() == shape.root, "gather_v", [&](Span input, Span output) {
    lockstep::gather_v(group, input, output, blocks.counts, shape.root).wait();
  });
}

void all_gather_v(const Group& group, const Shape& shape) {
  const Blocks blocks = uneven_blocks(group, shape);
  gather_by(blocks, true, "all_gather_v", [&](Span input, Span output) {
    lockstep::all_gather_v(group, input, output, blocks.counts).wait();
  });
}

void reduce_scatter(const Group& group, const Shape& shape) {
  reduce_scatter_by(even_blocks(group, shape), [&](std::span<float> input, std::span<float> output) {
    lockstep::reduce_scatter(group, input, output).wait();
  });
}

void reduce_scatter_v(const Group& group, const Shape& shape) {
  const Blocks blocks = uneven_blocks(group, shape);
  reduce_scatter_by(blocks, [&](std::span<float> input, std::span<float> output) {
    lockstep::reduce_scatter_v(group, input, blocks.counts, output).wait();
  });
}

void all_to_all(const Group& group, const Shape& shape) {
  const Blocks blocks = even_blocks(group, shape);
  const Bytes input = blocks.bytes(blocks.total());
  const Bytes output = blocks.bytes(blocks.total());
  for (int rank = 0; rank < group.size(); ++rank) fill(blocks.block(input.span(), rank), group.rank() + rank);
  lockstep::all_to_all(group, input.span(), output.span()).wait();
  for (int rank = 0; rank < group.size(); ++rank)
    require_bytes_of("all_to_all", blocks.block(output.span(), rank), rank + group.rank());
}

void all_to_all_v(const Group& group, const Shape& shape) {
  const auto counts = uneven(group, shape.elements);
  const std::size_t mine = counts[static_cast<std::size_t>(group.rank())];
  // Every rank sends alike to all, each rank something else.
  const Blocks sent{group, alike(group, mine), shape.memory};
  const Blocks received{group, counts, shape.memory};
  const Bytes input = sent.bytes(sent.total());
  const Bytes output = received.bytes(received.total());
  for (int rank = 0; rank < group.size(); ++rank) fill(sent.block(input.span(), rank), group.rank() + rank);
  lockstep::all_to_all_v(group, input.span(), sent.counts, output.span(), received.counts).wait();
  for (int rank = 0; rank < group.size(); ++rank)
    require_bytes_of("all_to_all_v", received.block(output.span(), rank), rank + group.rank());
}

}  // namespace probe
