#include "lockstep/engine/named_call.h"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <optional>
#include <utility>

#include "lockstep/group/collectives.h"
#include "lockstep/group/grouped.h"

namespace lockstep {
namespace {

Reduction reduction_of(const NamedRequest& request, const MemoryPlace& place = {}) {
  return {.dtype = request.dtype, .op = request.reduce_op, .prescale = request.prescale, .place = place};
}

/// The buffers of this rank's operation as its call takes them: where they are, or, where the call is in main memory and they are not,
/// as copies there.
class BuffersForCall {
 public:
  /// What the calls' stream gets from now on comes after what has made the buffers. `gpu`: where the call is; null: in main memory.
  BuffersForCall(NamedOperation& operation, RunningCall& call, const NamedGpu* gpu)
      : operation_(operation),
        call_(call),
        mark_(std::move(operation.mark)),
        is_copied_(mark_ && gpu == nullptr) {
    if (mark_) mark_->gpu()->follow(*mark_);
  }

  std::vector<std::span<std::byte>> in_place() const {
    std::vector<std::span<std::byte>> buffers = operation_.buffers.in_place;
    for (std::span<std::byte>& buffer : buffers) {
      if (is_copied_) buffer = returned(read(buffer), buffer);
    }
    return buffers;
  }
  std::span<const std::byte> input() const {
    const auto input = operation_.buffers.input;
    return is_copied_ ? read(input) : input;
  }
  std::span<std::byte> output(std::span<const std::int64_t> rows) const {
    const std::span<std::byte> output = operation_.buffers.make_output(rows);
    if (!mark_) return output;
    mark_->gpu()->require_own(output, to_string(operation_.request) + ": output");
    return is_copied_ ? returned(call_.own_buffers.emplace_back(output.size()), output) : output;
  }

 private:
  std::span<std::byte> read(std::span<const std::byte> there) const {
    const std::span<std::byte> here = call_.own_buffers.emplace_back(there.size());
    mark_->gpu()->read(there, here);
    return here;
  }
  /// Goes there when the call is over.
  std::span<std::byte> returned(std::span<std::byte> here, std::span<std::byte> there) const {
    call_.copies.push_back({here, there, mark_->gpu()});
    return here;
  }

  const NamedOperation& operation_;
  RunningCall& call_;
  const std::unique_ptr<NamedGpu::Mark> mark_;
  const bool is_copied_;
};

MemoryPlace place_on(const NamedGpu* gpu) { return gpu != nullptr ? gpu->place() : MemoryPlace{}; }

/// Counts that are all the same go without saying, which all ranks see alike: such a call has the better ways.
std::vector<std::size_t> unless_equal(std::vector<std::size_t> counts) {
  if (std::ranges::count(counts, counts.front()) == std::ssize(counts)) counts.clear();
  return counts;
}

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
      std::ranges::copy(BuffersForCall(*operation, call, gpu).in_place(), std::back_inserter(buffers));
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
  const MemoryPlace place = place_on(gpu);
  std::optional<BuffersForCall> buffers;  // of a rank that has not joined
  if (const auto& operation = call.operations.front()) buffers.emplace(*operation, call, gpu);
  if (request.operation == Operation::broadcast)
    return broadcast_bytes(group, buffers->in_place().front(), request.root, place);
  const auto own = static_cast<std::size_t>(group.rank());
  const auto ranks = static_cast<std::size_t>(group.size());
  const auto input = buffers ? buffers->input() : std::span<const std::byte>();
  const auto output = [&](const std::vector<std::int64_t>& rows, std::size_t row_bytes) {
    if (buffers) return buffers->output(rows);
    const auto all = std::accumulate(rows.begin(), rows.end(), std::int64_t{0});
    return std::span(call.own_buffers.emplace_back(static_cast<std::size_t>(all) * row_bytes));
  };
  const Shape& shape = request.shapes.front();
  if (request.operation == Operation::reduce_scatter) {
    const auto row_elements = elements_of(Shape(shape.begin() + 1, shape.end()));
    auto counts = shares_of(static_cast<std::size_t>(shape.front()), ranks);
    const auto out = output({static_cast<std::int64_t>(counts[own])}, row_elements * size_of(request.dtype));
    for (auto& count : counts) count *= row_elements;
    return reduce_scatter_bytes(group, input, out, reduction_of(request, place),
                                unless_equal(std::move(counts)));
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
    return all_gather_bytes(group, input, out, row_bytes, unless_equal(std::move(counts)), place);
  for (std::size_t rank = 0; rank < ranks; ++rank)
    sent[rank] = static_cast<std::size_t>(decision.rows[own][rank]);
  return all_to_all_v_bytes(group, input, sent, out, counts, row_bytes, place);
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
