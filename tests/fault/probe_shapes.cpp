#include "probe_shapes.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "lockstep/group/grouped.h"
#include "lockstep/group/reproducible.h"
#include "probe_buffer.h"

namespace probe {
namespace {

using lockstep::Dtype;
using lockstep::Group;
using lockstep::ReduceOp;

void reduce(const Group& group, const Shape& shape) {
  const Buffer<float> buffer(group, shape.elements, shape.memory);
  for (std::size_t i = 0; i < shape.elements; ++i)
    buffer.span()[i] = static_cast<float>(contribution(group.rank(), i));
  lockstep::reduce(group, buffer.span(), buffer.span(), shape.root).wait();
  const int ranks = group.rank() == shape.root ? group.size() : 0;
  require<float>("reduce", buffer.span(), [&](std::size_t i) {
    return static_cast<float>(ranks > 0 ? reduced(ReduceOp::sum, ranks, i) : contribution(group.rank(), i));
  });
}

/// Two all_reduces under way at once, as gradients' buckets are.
void overlapping(const Group& group, const Shape& shape) {
  const Buffer<float> first(group, shape.elements, Memory::arena), second(group, shape.elements, Memory::own);
  std::fill(first.span().begin(), first.span().end(), 1.0F);
  std::fill(second.span().begin(), second.span().end(), 2.0F);
  auto one = lockstep::all_reduce(group, first.span());
  auto two = lockstep::all_reduce(group, second.span());
  two.wait();
  one.wait();
  const auto ranks = static_cast<float>(group.size());
  require<float>("the first of two all_reduces", first.span(), [&](std::size_t) { return ranks; });
  require<float>("the second of two all_reduces", second.span(), [&](std::size_t) { return 2 * ranks; });
}

void all_reduce_grouped(const Group& group, const Shape& shape) {
  const std::array sizes = {std::size_t{3}, shape.elements, shape.elements / 2, std::size_t{0}};
  std::vector<Buffer<float>> memory;
  for (const std::size_t size : sizes) memory.emplace_back(group, size, shape.memory);
  std::vector<std::span<float>> buffers;
  for (const auto& buffer : memory) {
    buffers.push_back(buffer.span());
    for (std::size_t i = 0; i < buffer.span().size(); ++i)
      buffer.span()[i] = static_cast<float>(contribution(group.rank(), i));
  }
  lockstep::all_reduce_grouped(group, buffers).wait();
  for (const auto buffer : buffers) {
    require<float>("all_reduce_grouped", buffer, [&](std::size_t i) {
      return static_cast<float>(reduced(ReduceOp::sum, group.size(), i));
    });
  }
}

/// Rank r contributes r + 1 inputs, each all ones.
void reproducible_all_reduce(const Group& group, const Shape& shape) {
  const Buffer<float> ones(group, shape.elements, shape.memory), sum(group, shape.elements, shape.memory);
  std::fill(ones.span().begin(), ones.span().end(), 1.0F);
  const std::vector<std::span<const float>> inputs(static_cast<std::size_t>(group.rank()) + 1, ones.span());
  lockstep::reproducible_all_reduce(group, inputs, sum.span());
  require<float>("reproducible_all_reduce", sum.span(),
                 [&](std::size_t) { return static_cast<float>(group.size() * (group.size() + 1) / 2); });
}

void custom_op(const Group& group, const Shape& shape) {
  static const auto largest =
      lockstep::custom_op<float>("largest", [](float a, float b) { return std::max(a, b); });
  const Buffer<float> buffer(group, shape.elements, shape.memory);
  for (std::size_t i = 0; i < shape.elements; ++i)
    buffer.span()[i] = static_cast<float>(contribution(group.rank(), i));
  lockstep::all_reduce(group, buffer.span(), largest).wait();
  require<float>("all_reduce of a custom operation", buffer.span(),
                 [&](std::size_t i) { return static_cast<float>(reduced(ReduceOp::max, group.size(), i)); });
}

/// To the right neighbour under two tags, taken by the other one in the other order.
void messages(const Group& group, const Shape& shape) {
  const int right = (group.rank() + 1) % group.size();
  const int left = (group.rank() + group.size() - 1) % group.size();
  std::array<std::vector<unsigned char>, 2> out, in;
  for (int tag : {0, 1}) {
    const auto index = static_cast<std::size_t>(tag);
    out[index].resize(shape.elements);
    in[index].resize(shape.elements);
    fill(out[index], group.rank() + tag);
  }
  auto first = lockstep::send(group, out[0], right, 0);
  auto second = lockstep::send(group, out[1], right, 1);
  lockstep::recv(group, in[1], left, 1).wait();
  lockstep::recv(group, in[0], left, 0).wait();
  first.wait();
  second.wait();
  for (int tag : {0, 1}) require_bytes_of("messages", in[static_cast<std::size_t>(tag)], left + tag);
}

void sendrecv(const Group& group, const Shape& shape) {
  const int right = (group.rank() + 1) % group.size();
  const int left = (group.rank() + group.size() - 1) % group.size();
  const Buffer<unsigned char> out(group, shape.elements, shape.memory),
      in(group, shape.elements, Memory::own);
  fill(out.span(), group.rank());
  lockstep::sendrecv(group, out.span(), right, in.span(), left, 7, 7).wait();
  require_bytes_of("sendrecv", in.span(), left);
}

/// In a group that is made for it, of every other rank; the barrier is for those in the other one.
void split(const Group& group, const Shape& shape) {
  {
    const auto half = group.split(group.rank() % 2, -group.rank());
    all_reduce(*half, Dtype::f32, shape.elements, shape.memory);
  }
  lockstep::barrier(group).wait();
}

constexpr Collective collectives[] = {
    {"all_reduce", [](const Group& group,
                      const Shape& shape) { all_reduce(group, Dtype::f32, shape.elements, shape.memory); }},
    {"overlapping", overlapping},
    {"all_reduce_grouped", all_reduce_grouped},
    {"reproducible_all_reduce", reproducible_all_reduce},
    {"custom_op", custom_op},
    {"reduce", reduce},
    {"reduce_scatter", reduce_scatter},
    {"reduce_scatter_v", reduce_scatter_v},
    {"broadcast", [](const Group& group,
                     const Shape& shape) { broadcast(group, shape.elements, shape.root, shape.memory); }},
    {"scatter", scatter},
    {"scatter_v", scatter_v},
    {"gather", gather},
    {"gather_v", gather_v},
    {"all_gather",
     [](const Group& group, const Shape& shape) { all_gather(group, shape.elements, shape.memory); }},
    {"all_gather_v", all_gather_v},
    {"all_to_all", all_to_all},
    {"all_to_all_v", all_to_all_v},
    {"barrier", [](const Group& group, const Shape&) { lockstep::barrier(group).wait(); }},
    {"messages", messages},
    {"sendrecv", sendrecv},
    {"split", split},
};

}  // namespace

std::span<const Collective> all_collectives() { return collectives; }

const Collective& collective_named(std::string_view name) {
  std::string known;
  for (const Collective& collective : collectives) {
    if (collective.name == name) return collective;
    known += " " + std::string(collective.name);
  }
  throw std::invalid_argument(std::string(name) + " is no collective of the probe; there are" + known);
}

}  // namespace probe
