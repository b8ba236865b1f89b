#include "lockstep/train/tensor/tensor_collectives.h"

#include <algorithm>
#include <string>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/group/gpu_calls.h"
#include "lockstep/group/grouped.h"
#include "lockstep/train/tensor/gpu_place.h"
#include "lockstep/train/tensor/host_array.h"
#include "lockstep/train/tensor/tensor_bytes.h"

namespace lockstep {
namespace {

using Use = HostArray::Use;

constexpr const char* messages_leave = "messages of tensors, which have tags, are carried there";

/// What one rank passes to a collective; in messages "gather's input", "gather's output".
class Passed {
 public:
  Passed(const Group& group, const char* operation) : group_(group), operation_(operation) {}

  /// Where the call takes its tensors: decided by one that every rank has. Others have to be there, too.
  Passed& at(const torch::Tensor& tensor) {
    if (tensor.defined()) place_ = place_of(group_, tensor.device());
    return *this;
  }
  /// Of a reduction, which GPUs may not have.
  Passed& at(const torch::Tensor& tensor, Dtype dtype, ReduceOp op) {
    return can_reduce_on_gpu(dtype, op) ? at(tensor) : *this;
  }
  const MemoryPlace& place() const { return place_; }

  HostArray input(const torch::Tensor& tensor, Use use = Use::read) const {
    return array(tensor, "input", use);
  }
  HostArray output(const torch::Tensor& tensor) const { return array(tensor, "output", Use::write); }
  HostArray only(const torch::Tensor& tensor, Use use) const { return array(tensor, "tensor", use); }

  Reduction reduction_at(const torch::Tensor& input, ReduceOp op, const CollectiveOptions& options) {
    require_contiguous(input, name("input"), "pass tensor.contiguous()");
    const Dtype dtype = reducible(input, "input");
    at(input, dtype, op);
    return {.dtype = dtype, .op = op, .prescale = options.prescale, .place = place_};
  }

  Dtype reducible(const torch::Tensor& tensor, const char* role) const {
    if (const auto dtype = reducible_dtype(tensor.scalar_type())) return *dtype;
    throw Error(ErrorCode::unsupported,
                name(role) + " is " + describe(tensor) +
                    "; only integers, bool, f16, bf16, f32, f64, complex64 and complex128 can be reduced: "
                    "convert it with .to()");
  }

  void require_one_type(const torch::Tensor& input, const torch::Tensor& output) const {
    if (input.scalar_type() == output.scalar_type()) return;
    throw_unlike(input, output, "the same type");
  }
  void require_as_many(const torch::Tensor& input, const torch::Tensor& output) const {
    if (input.numel() == output.numel()) return;
    throw_unlike(input, output, "as many elements");
  }
  /// `larger` has a block like `one` for each rank.
  void require_blocks(const char* larger_role, const torch::Tensor& larger, const torch::Tensor& one) const {
    if (larger.numel() == one.numel() * group_.size()) return;
    throw_invalid_argument(name(larger_role) + " is " + describe(larger) + "; it needs " +
                           std::to_string(one.numel() * group_.size()) + " elements, " +
                           std::to_string(one.numel()) + " for each of " + std::to_string(group_.size()) +
                           " ranks");
  }
  void require_divisible(const torch::Tensor& input) const {
    if (input.numel() % group_.size() == 0) return;
    throw_invalid_argument(name("input") + " is " + describe(input) + "; its " +
                           std::to_string(input.numel()) + " elements are not equal blocks for " +
                           std::to_string(group_.size()) + " ranks");
  }

  std::string name(const char* role) const { return std::string(operation_) + "'s " + role; }

 private:
  [[noreturn]] void throw_unlike(const torch::Tensor& input, const torch::Tensor& output,
                                 const char* wanted) const {
    throw_invalid_argument(name("input") + " is " + describe(input) + ", its output " + describe(output) +
                           "; they need " + wanted);
  }

  /// Refuses gaps also where there would be a copy anyway: what works must not depend on the device.
  HostArray array(const torch::Tensor& tensor, const char* role, Use use) const {
    require_contiguous(
        tensor, name(role),
        use == Use::read ? "pass tensor.contiguous()" : "pass tensor.contiguous() and copy the result back");
    return {tensor, name(role), use, place_};
  }

  const Group& group_;
  const char* operation_;
  MemoryPlace place_;
};

/// Places in one array for all of `outputs`.
std::vector<HostArray> pieces_of(const torch::Tensor& flat, const std::vector<torch::Tensor>& outputs) {
  std::vector<HostArray> pieces;
  std::int64_t begin = 0;
  for (const auto& output : outputs) {
    pieces.emplace_back(output, "all_gather's output", flat.narrow(0, begin, output.numel()));
    begin += output.numel();
  }
  return pieces;
}

void require_fitting_list(const Group& group, const torch::Tensor& input,
                          const std::vector<torch::Tensor>& outputs) {
  const auto ranks = static_cast<std::size_t>(group.size());
  if (outputs.size() != ranks) {
    throw_invalid_argument("all_gather has " + std::to_string(outputs.size()) + " outputs for " +
                           std::to_string(ranks) + " ranks; pass a tensor for each");
  }
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    const auto what = "all_gather's output " + std::to_string(rank);
    require_contiguous(outputs[rank], what, "pass tensor.contiguous() and copy the result back");
    if (outputs[rank].scalar_type() == input.scalar_type()) continue;
    throw_invalid_argument(what + " is " + describe(outputs[rank]) + ", its input " + describe(input) +
                           "; they need the same type");
  }
  const auto& own = outputs[static_cast<std::size_t>(group.rank())];
  if (own.numel() == input.numel()) return;
  throw_invalid_argument("all_gather's input is " + describe(input) + ", and output " +
                         std::to_string(group.rank()) + ", which is for it, " + describe(own) +
                         "; they need as many elements");
}

}  // namespace

Work all_reduce(const Group& group, const torch::Tensor& tensor, ReduceOp op, CollectiveOptions options) {
  Passed passed(group, "all_reduce");
  require_contiguous(tensor, passed.name("tensor"), "pass tensor.contiguous() and copy the result back");
  const Dtype dtype = passed.reducible(tensor, "tensor");
  const HostArray array = passed.at(tensor, dtype, op).only(tensor, Use::both);
  return then_put_back(
      all_reduce_bytes(group, array.bytes(), array.bytes(),
                       {.dtype = dtype, .op = op, .prescale = options.prescale, .place = passed.place()}),
      {array});
}

Work all_reduce_grouped(const Group& group, const std::vector<torch::Tensor>& tensors, ReduceOp op,
                        CollectiveOptions options) {
  if (tensors.empty()) return {};
  Passed passed(group, "all_reduce_grouped");
  for (const auto& tensor : tensors)
    require_contiguous(tensor, passed.name("tensor"), "pass tensor.contiguous() and copy the result back");
  const Dtype dtype = passed.reducible(tensors.front(), "tensor");
  passed.at(tensors.front(), dtype, op);
  std::vector<HostArray> arrays;
  std::vector<std::span<std::byte>> buffers;
  for (const auto& tensor : tensors) {
    if (tensor.scalar_type() != tensors.front().scalar_type())
      throw_invalid_argument("all_reduce_grouped has tensors of " + type_name(tensors.front().scalar_type()) +
                             " and " + type_name(tensor.scalar_type()) + "; a call is for one type");
    arrays.push_back(passed.only(tensor, Use::both));
    buffers.push_back(arrays.back().bytes());
  }
  return then_put_back(
      all_reduce_grouped_bytes(
          group, buffers, {.dtype = dtype, .op = op, .prescale = options.prescale, .place = passed.place()}),
      std::move(arrays));
}

Work reduce(const Group& group, const torch::Tensor& input, const torch::Tensor& output, int root,
            ReduceOp op, CollectiveOptions options) {
  Passed passed(group, "reduce");
  const Reduction reduction = passed.reduction_at(input, op, options);
  const HostArray from = passed.input(input);
  if (group.rank() != root) {
    return then_put_back(reduce_bytes(group, from.bytes(), {}, root, reduction), {from});
  }
  const HostArray to = passed.output(output);
  passed.require_one_type(input, output);
  passed.require_as_many(input, output);
  return then_put_back(reduce_bytes(group, from.bytes(), to.bytes(), root, reduction), {from, to});
}

Work reduce_scatter(const Group& group, const torch::Tensor& input, const torch::Tensor& output, ReduceOp op,
                    CollectiveOptions options) {
  Passed passed(group, "reduce_scatter");
  const Reduction reduction = passed.reduction_at(input, op, options);
  const HostArray from = passed.input(input);
  const HostArray to = passed.output(output);
  passed.require_one_type(input, output);
  passed.require_blocks("input", input, output);
  return then_put_back(reduce_scatter_bytes(group, from.bytes(), to.bytes(), reduction), {from, to});
}

Work broadcast(const Group& group, const torch::Tensor& tensor, int root) {
  Passed passed(group, "broadcast");
  const HostArray array = passed.at(tensor).only(tensor, group.rank() == root ? Use::both : Use::write);
  return then_put_back(broadcast_bytes(group, array.bytes(), root, passed.place()), {array});
}

Work scatter(const Group& group, const torch::Tensor& input, const torch::Tensor& output, int root) {
  Passed passed(group, "scatter");
  const HostArray to = passed.at(output).output(output);
  const MemoryPlace& place = passed.place();
  if (group.rank() != root)
    return then_put_back(scatter_bytes(group, {}, to.bytes(), root, 1, {}, place), {to});
  const HostArray from = passed.input(input);
  passed.require_one_type(input, output);
  passed.require_blocks("input", input, output);
  return then_put_back(scatter_bytes(group, from.bytes(), to.bytes(), root, 1, {}, place), {from, to});
}

Work gather(const Group& group, const torch::Tensor& input, const torch::Tensor& output, int root) {
  Passed passed(group, "gather");
  const HostArray from = passed.at(input).input(input);
  const MemoryPlace& place = passed.place();
  if (group.rank() != root)
    return then_put_back(gather_bytes(group, from.bytes(), {}, root, 1, {}, place), {from});
  const HostArray to = passed.output(output);
  passed.require_one_type(input, output);
  passed.require_blocks("output", output, input);
  return then_put_back(gather_bytes(group, from.bytes(), to.bytes(), root, 1, {}, place), {from, to});
}

Work all_gather(const Group& group, const torch::Tensor& input, const torch::Tensor& output) {
  Passed passed(group, "all_gather");
  const HostArray from = passed.at(input).input(input);
  const HostArray to = passed.output(output);
  passed.require_one_type(input, output);
  passed.require_blocks("output", output, input);
  return then_put_back(all_gather_bytes(group, from.bytes(), to.bytes(), 1, {}, passed.place()), {from, to});
}

Work all_gather(const Group& group, const torch::Tensor& input, const std::vector<torch::Tensor>& outputs) {
  Passed passed(group, "all_gather");
  const HostArray from = passed.at(input).input(input);
  const MemoryPlace& place = passed.place();
  require_fitting_list(group, input, outputs);
  std::vector<std::size_t> counts;
  std::int64_t elements = 0;
  for (const auto& output : outputs) {
    counts.push_back(static_cast<std::size_t>(output.numel()));
    elements += output.numel();
  }
  // So that ranks with a list and with one tensor meet.
  if (std::ranges::count(counts, counts.front()) == std::ssize(counts)) counts.clear();
  const torch::Device device = place.is_on_gpu() ? input.device() : torch::Device(torch::kCPU);
  const auto flat = torch::empty({elements}, torch::dtype(input.scalar_type()).device(device));
  std::vector<HostArray> arrays = pieces_of(flat, outputs);
  arrays.push_back(from);
  return then_put_back(all_gather_bytes(group, from.bytes(), bytes_for_calls(flat, true),
                                        counts.empty() ? 1 : input.element_size(), counts, place),
                       std::move(arrays));
}

Work all_to_all(const Group& group, const torch::Tensor& input, const torch::Tensor& output) {
  Passed passed(group, "all_to_all");
  const HostArray from = passed.at(input).input(input);
  const HostArray to = passed.output(output);
  passed.require_one_type(input, output);
  passed.require_as_many(input, output);
  passed.require_divisible(input);
  return then_put_back(
      all_to_all_bytes(group, from.bytes(), to.bytes(), input.element_size(), passed.place()), {from, to});
}

Work send(const Group& group, const torch::Tensor& tensor, int destination, int tag) {
  const HostArray array = Passed(group, "send").only(tensor, Use::read);
  say_leaves_gpu(group, tensor.device(), messages_leave);
  return then_put_back(send_bytes(group, array.bytes(), destination, tag), {array});
}

Work recv(const Group& group, const torch::Tensor& tensor, int source, int tag, Received* received) {
  const HostArray array = Passed(group, "recv").only(tensor, Use::write);
  say_leaves_gpu(group, tensor.device(), messages_leave);
  return then_put_back(recv_bytes(group, array.bytes(), source, tag, received), {array});
}

}  // namespace lockstep
