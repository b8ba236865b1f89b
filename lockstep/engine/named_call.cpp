#include "lockstep/engine/named_call.h"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <utility>

#include "lockstep/group/collectives.h"
#include "lockstep/group/grouped.h"

namespace lockstep {
namespace {

Reduction reduction_of(const NamedRequest& request, const MemoryPlace& place = {}) {
  return {.dtype = request.dtype, .op = request.reduce_op, .prescale = request.prescale, .place = place};
}

/// Where the call takes an operation's buffers: where they are, or in main memory.
std::vector<std::span<std::byte>> buffers_for_call(NamedOperation& operation, RunningCall& call,
                                                   const NamedGpu* gpu) {
  const auto& in_place = operation.buffers.in_place;
  if (!operation.mark) return in_place;
  const auto mark = std::move(operation.mark);
  mark->gpu()->follow(*mark);
  if (gpu != nullptr) return in_place;
  std::vector<std::span<std::byte>> copies;
  for (const std::span<std::byte> there : in_place) {
    const std::span here = copies.emplace_back(call.own_buffers.emplace_back(there.size()));
    mark->gpu()->read(there, here);
    call.copies.push_back({here, there, mark->gpu()});
  }
  return copies;
}

MemoryPlace place_on(const NamedGpu* gpu) { return gpu != nullptr ? gpu->place() : MemoryPlace{}; }

/// How many of `rows` each rank gets: equally many, and the first ranks one more where some are left over.
std::vector<std::size_t> shares_of(std::size_t rows, std::size_t ranks) {
  std::vector<std::size_t> shares(ranks, rows / ranks);
  for (std::size_t i = 0; i < rows % ranks; ++i) ++shares[i];
  return shares;
}

Work all_reduces(const Group& group, std::span<const Decision> decisions, RunningCall& call,
                 const NamedGpu* gpu) {
  std::vector<std::span<std::byte>> buffers;
  for (std::size_t i = 0; i < decisions.size(); ++i) {
    if (const auto& operation = call.operations[i]) {
      std::ranges::copy(buffers_for_call(*operation, call, gpu), std::back_inserter(buffers));
      continue;
    }
    const NamedRequest& request = decisions[i].request;
    for (const Shape& shape : request.shapes)
      buffers.emplace_back(call.own_buffers.emplace_back(elements_of(shape) * size_of(request.dtype)));
  }
  return all_reduce_grouped_bytes(group, buffers, reduction_of(decisions.front().request, place_on(gpu)));
}

Work one(const Group& group, const Decision& decision, RunningCall& call, const NamedGpu* gpu) {
  const NamedRequest& request = decision.request;
  if (request.operation == Operation::barrier) return {};
  const NamedBuffers none;
  const NamedBuffers& buffers = call.operations.front() ? call.operations.front()->buffers : none;
  const auto own = static_cast<std::size_t>(group.rank());
  const auto ranks = static_cast<std::size_t>(group.size());
  const auto output = [&](const std::vector<std::int64_t>& rows, std::size_t row_bytes) {
    if (buffers.make_output) return buffers.make_output(rows);
    const auto all = std::accumulate(rows.begin(), rows.end(), std::int64_t{0});
    return std::span(call.own_buffers.emplace_back(static_cast<std::size_t>(all) * row_bytes));
  };
  const Shape& shape = request.shapes.front();
  if (request.operation == Operation::broadcast)
    return broadcast_bytes(group, buffers_for_call(*call.operations.front(), call, gpu).front(), request.root,
                           place_on(gpu));
  if (request.operation == Operation::reduce_scatter) {
    const auto row_elements = elements_of(Shape(shape.begin() + 1, shape.end()));
    auto counts = shares_of(static_cast<std::size_t>(shape.front()), ranks);
    const auto out = output({static_cast<std::int64_t>(counts[own])}, row_elements * size_of(request.dtype));
    for (auto& count : counts) count *= row_elements;
    return reduce_scatter_bytes(group, buffers.input, out, reduction_of(request), counts);
  }
  const std::size_t row_bytes = elements_of(shape) * size_of(request.dtype);
  std::vector<std::int64_t> received(ranks);
  std::vector<std::size_t> sent(ranks), counts(ranks);
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    const auto& rows = decision.rows[rank];
    received[rank] = request.operation == Operation::all_gather ? rows.front() : rows[own];
    counts[rank] = static_cast<std::size_t>(received[rank]);
  }
  const auto out = output(received, row_bytes);
  if (row_bytes == 0) return {};
  if (request.operation == Operation::all_gather)
    return all_gather_bytes(group, buffers.input, out, row_bytes, counts);
  for (std::size_t rank = 0; rank < ranks; ++rank)
    sent[rank] = static_cast<std::size_t>(decision.rows[own][rank]);
  return all_to_all_v_bytes(group, buffers.input, sent, out, counts, row_bytes);
}

}  // namespace

void RunningCall::put_back() const {
  for (const Copy& copy : copies) copy.gpu->write(copy.here, copy.there);
}

RunningCall start_call(const Group& group, std::span<const Decision> decisions,
                       std::vector<std::shared_ptr<NamedOperation>> operations,
                       const std::shared_ptr<NamedGpu>& gpu) {
  RunningCall call;
  call.operations = std::move(operations);
  const bool reduces_all = decisions.front().request.operation == Operation::all_reduce;
  call.work = reduces_all ? all_reduces(group, decisions, call, gpu.get())
                          : one(group, decisions.front(), call, gpu.get());
  return call;
}

}  // namespace lockstep
