#include "probe_collectives.h"

#include <vector>

#include "lockstep/base/half.h"
#include "probe_buffer.h"
#include "probe_shapes.h"

namespace probe {
namespace {

using lockstep::Dtype;
using lockstep::Group;
using lockstep::ReduceOp;

template <class T>
T element(double value) {
  if constexpr (std::is_arithmetic_v<T>) return static_cast<T>(value);
  if constexpr (std::is_same_v<T, lockstep::bfloat16>)
    return lockstep::to_bfloat16(static_cast<float>(value));
  if constexpr (std::is_same_v<T, lockstep::float16>) return lockstep::to_float16(static_cast<float>(value));
}

template <class T>
void all_reduce_as(const Group& group, std::size_t elements, Memory memory, ReduceOp op) {
  const Buffer<T> buffer(group, elements, memory);
  for (std::size_t i = 0; i < elements; ++i) buffer.span()[i] = element<T>(contribution(group.rank(), i));
  lockstep::all_reduce(group, buffer.span(), op).wait();
  require<T>("all_reduce", buffer.span(),
             [&](std::size_t i) { return element<T>(reduced(op, group.size(), i)); });
}

int everything_reduced(const Group& group, std::size_t elements, Memory memory) {
  int calls = 0;
  for (const Dtype dtype : {Dtype::f32, Dtype::f64, Dtype::i32, Dtype::i64, Dtype::bf16, Dtype::f16}) {
    const bool whole = dtype == Dtype::i32 || dtype == Dtype::i64;
    for (const ReduceOp op : {ReduceOp::sum, ReduceOp::min, ReduceOp::max, ReduceOp::average}) {
      if (whole && op == ReduceOp::average) continue;
      all_reduce(group, dtype, elements, memory, op);
      ++calls;
    }
  }
  return calls;
}

}  // namespace

void all_reduce(const Group& group, Dtype dtype, std::size_t elements, Memory memory, ReduceOp op) {
  switch (dtype) {
    case Dtype::f32: return all_reduce_as<float>(group, elements, memory, op);
    case Dtype::f64: return all_reduce_as<double>(group, elements, memory, op);
    case Dtype::i32: return all_reduce_as<std::int32_t>(group, elements, memory, op);
    case Dtype::i64: return all_reduce_as<std::int64_t>(group, elements, memory, op);
    case Dtype::bf16: return all_reduce_as<lockstep::bfloat16>(group, elements, memory, op);
    case Dtype::f16: return all_reduce_as<lockstep::float16>(group, elements, memory, op);
    default: break;
  }
  throw std::invalid_argument("all_reduce of " + std::string(to_string(dtype)) +
                              " is not one of the probe's");
}

void broadcast(const Group& group, std::size_t bytes, int root, Memory memory) {
  const Buffer<unsigned char> buffer(group, bytes, memory);
  fill(buffer.span(), group.rank());
  lockstep::broadcast(group, buffer.span(), root).wait();
  require_bytes_of("broadcast", buffer.span(), root);
}

void all_gather(const Group& group, std::size_t bytes_of_each, Memory memory) {
  std::vector<unsigned char> mine(bytes_of_each);
  fill(mine, group.rank());
  const auto ranks = static_cast<std::size_t>(group.size());
  const Buffer<unsigned char> all(group, bytes_of_each * ranks, memory);
  lockstep::all_gather(group, mine, all.span()).wait();
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    require_bytes_of("all_gather", all.span().subspan(rank * bytes_of_each, bytes_of_each),
                     static_cast<int>(rank));
  }
}

int everything(const Group& group) {
  int calls = 0;
  for (const Memory memory : all_memories) {
    for (const std::size_t size : {0U, 1U, 7U, 1000U, 30'000U, 300'000U}) {
      calls += everything_reduced(group, size, memory);
      for (int root = 0; root < group.size(); ++root) broadcast(group, size, root, memory);
      for (const Collective& collective : all_collectives()) {
        collective.call(group, {.elements = size, .memory = memory, .root = group.size() - 1});
        ++calls;
      }
      calls += group.size();
    }
  }
  return calls;
}

Dtype dtype_named(const std::string& name) {
  for (const Dtype dtype : lockstep::all_dtypes) {
    if (to_string(dtype) == name) return dtype;
  }
  throw std::invalid_argument(name + " is no dtype");
}

}  // namespace probe
