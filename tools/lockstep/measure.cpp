#include "measure.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "lockstep/group/collectives.h"
#include "lockstep/schedule/call.h"

namespace measure {
namespace {

using lockstep::Operation;
using lockstep::Where;

constexpr int root = 0;

}  // namespace

const std::vector<Operation>& operations() {
  static const std::vector<Operation> all = {
      Operation::all_reduce, Operation::reduce,     Operation::reduce_scatter,
      Operation::broadcast,  Operation::scatter,    Operation::gather,
      Operation::all_gather, Operation::all_to_all, Operation::barrier};
  return all;
}

double over_all(const lockstep::Group& group, double value, lockstep::ReduceOp op) {
  lockstep::all_reduce(group, std::span(&value, 1), op).wait();
  return value;
}

std::uint64_t buffer_bytes(Operation operation, std::uint64_t bytes, int ranks) {
  const lockstep::Call call{
      .operation = operation, .elements = bytes, .rank = root, .ranks = ranks, .root = root};
  return std::max(lockstep::schedule::input_elements(call), lockstep::schedule::output_elements(call));
}

Buffers::Buffers(const lockstep::Group& group, PrivateMemory& memory)
    : group_(group),
      memory_(memory),
      input_(group.allocate<float>(memory.input.size())),
      output_(group.allocate<float>(memory.output.size())) {
  for (const auto& buffer : {input_.span(), output_.span()}) std::ranges::fill(buffer, 1.0F);
  lockstep::barrier(group).wait();
}

void Buffers::run(const Call& call) const {
  const std::size_t elements = call.bytes / sizeof(float);
  const std::size_t all = elements * static_cast<std::size_t>(group_.size());
  const bool in_arena = call.where == Where::arena;
  const auto in = [&](std::size_t count) {
    return (in_arena ? input_.span() : std::span(memory_.input)).first(count);
  };
  const auto out = [&](std::size_t count) {
    return (in_arena ? output_.span() : std::span(memory_.output)).first(count);
  };
  switch (call.operation) {
    case Operation::all_reduce: return lockstep::all_reduce(group_, in(elements), out(elements)).wait();
    case Operation::reduce: return lockstep::reduce(group_, in(elements), out(elements), root).wait();
    case Operation::reduce_scatter: return lockstep::reduce_scatter(group_, in(all), out(elements)).wait();
    case Operation::broadcast: return lockstep::broadcast(group_, in(elements), root).wait();
    case Operation::scatter: return lockstep::scatter(group_, in(all), out(elements), root).wait();
    case Operation::gather: return lockstep::gather(group_, in(elements), out(all), root).wait();
    case Operation::all_gather: return lockstep::all_gather(group_, in(elements), out(all)).wait();
    case Operation::all_to_all: return lockstep::all_to_all(group_, in(all), out(all)).wait();
    default: return lockstep::barrier(group_).wait();
  }
}

double Buffers::time(const Call& call, double seconds) const {
  using Clock = std::chrono::steady_clock;
  const auto timed = [&](int calls) {
    lockstep::barrier(group_).wait();
    const auto begin = Clock::now();
    for (int i = 0; i < calls; ++i) run(call);
    // A root must not run ahead of what the others have yet to do.
    lockstep::barrier(group_).wait();
    return over_all(group_, std::chrono::duration<double>(Clock::now() - begin).count(),
                    lockstep::ReduceOp::max) /
           calls;
  };
  const double first = timed(2);  // the plan is made, pages are touched
  const double more = std::ceil(seconds / std::max(first, 1e-7));
  return more <= 2 ? first : timed(static_cast<int>(std::min(more, 100'000.0)));
}

}  // namespace measure
