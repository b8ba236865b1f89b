#include "lockstep/train/horovod/named_tensors.h"

#include <algorithm>
#include <numeric>

#include "lockstep/base/error.h"
#include "lockstep/train/tensor/gpu_place.h"
#include "lockstep/train/tensor/host_array.h"
#include "lockstep/train/tensor/tensor_bytes.h"

namespace lockstep {
namespace {

Shape shape_of(const torch::Tensor& tensor) { return tensor.sizes().vec(); }

/// Of each row.
Shape row_of(const torch::Tensor& tensor, const std::string& name) {
  if (tensor.dim() == 0)
    throw_invalid_argument("tensor " + name +
                           " has no dimension to be split or joined along; unsqueeze(0) it");
  return tensor.sizes().slice(1).vec();
}

/// What is only moved is moved as bytes: a dimension more, of one element's.
Shape in_bytes(Shape shape, const torch::Tensor& tensor) {
  shape.push_back(tensor.element_size());
  return shape;
}

Dtype dtype_to_reduce(const torch::Tensor& tensor, const std::string& name) {
  const auto dtype = reducible_dtype(tensor.scalar_type());
  if (!dtype)
    throw Error(ErrorCode::unsupported,
                "tensor " + name + " is " + describe(tensor) + ", which cannot be reduced");
  return *dtype;
}

std::string label(const std::string& name) { return "tensor " + name; }

NamedRequest reduction(const torch::Tensor& tensor, const std::string& name, Operation operation, ReduceOp op,
                       const CollectiveOptions& options) {
  return {.name = name,
          .operation = operation,
          .dtype = dtype_to_reduce(tensor, name),
          .reduce_op = op,
          .prescale = options.prescale,
          .shapes = {shape_of(tensor)}};
}

/// A copy for a result; contiguous.
torch::Tensor copy_of(const torch::Tensor& tensor, const std::string& name) {
  require_array(tensor, label(name));
  return tensor.detach().clone(torch::MemoryFormat::Contiguous);
}

/// The place of a tensor that becomes the result.
HostArray in_place(const torch::Tensor& tensor, const std::string& name, const MemoryPlace& place) {
  require_contiguous(tensor, label(name), "pass tensor.contiguous() and copy the result back");
  return {tensor, label(name), HostArray::Use::both, place};
}

NamedResult submitted(const NamedCollectives& named, const torch::Tensor& tensor, NamedRequest request) {
  const MemoryPlace place = place_on(tensor.device());
  const HostArray array = in_place(tensor, request.name, place);
  NamedBuffers buffers{.in_place = {array.bytes()}, .place = place};
  return {tensor, then_put_back(named.submit(std::move(request), std::move(buffers)), {array})};
}

/// An operation with an input of its own and a result whose rows become known later.
NamedResult with_new_result(const NamedCollectives& named, const torch::Tensor& tensor,
                            NamedRequest request) {
  const auto name = label(request.name);
  require_array(tensor, name);
  const MemoryPlace place = place_on(tensor.device());
  const torch::Device device = place.is_on_gpu() ? tensor.device() : torch::Device(torch::kCPU);
  const torch::Tensor input = tensor.detach().to(device, tensor.scalar_type(), /*non_blocking=*/false,
                                                 /*copy=*/true, torch::MemoryFormat::Contiguous);
  auto result = std::make_shared<torch::Tensor>();
  NamedBuffers buffers{
      .place = place, .input = bytes_for_calls(input, false), .make_output = [result, input](auto rows) {
        auto sizes = input.sizes().vec();
        sizes[0] = std::accumulate(rows.begin(), rows.end(), std::int64_t{0});
        *result = empty_for_result(sizes, input.options());
        return bytes_for_calls(*result, true);
      }};
  return {std::move(result), named.submit(std::move(request), std::move(buffers)), tensor.device()};
}

}  // namespace

torch::Tensor NamedResult::wait() {
  work_.wait();
  used_now(*result_);
  if (result_->device() != device_) *result_ = result_->to(device_);
  return *result_;
}

NamedResult all_reduce(const NamedCollectives& named, const torch::Tensor& tensor, const std::string& name,
                       ReduceOp op, CollectiveOptions options) {
  return all_reduce_(named, copy_of(tensor, name), name, op, options);
}

NamedResult all_reduce_(const NamedCollectives& named, const torch::Tensor& tensor, const std::string& name,
                        ReduceOp op, CollectiveOptions options) {
  return submitted(named, tensor, reduction(tensor, name, Operation::all_reduce, op, options));
}

Work all_reduce_grouped_(const NamedCollectives& named, const std::vector<torch::Tensor>& tensors,
                         const std::string& name, ReduceOp op, CollectiveOptions options) {
  if (tensors.empty()) throw_invalid_argument("all_reduce_grouped_ " + name + ": there are no tensors");
  auto request = reduction(tensors.front(), name, Operation::all_reduce, op, options);
  request.shapes.clear();
  NamedBuffers buffers;
  const torch::Device device = tensors.front().device();
  if (std::ranges::all_of(tensors, [&](const torch::Tensor& tensor) { return tensor.device() == device; }))
    buffers.place = place_on(device);
  std::vector<HostArray> arrays;
  for (const auto& tensor : tensors) {
    if (tensor.scalar_type() != tensors.front().scalar_type())
      throw_invalid_argument("all_reduce_grouped_ " + name + ": tensors of " +
                             type_name(tensors.front().scalar_type()) + " and " +
                             type_name(tensor.scalar_type()) + "; one call is for one type");
    request.shapes.push_back(shape_of(tensor));
    arrays.push_back(in_place(tensor, name, buffers.place));
    buffers.in_place.push_back(arrays.back().bytes());
  }
  return then_put_back_and_keep(named.submit(std::move(request), std::move(buffers)), std::move(arrays));
}

NamedResult broadcast(const NamedCollectives& named, const torch::Tensor& tensor, int root,
                      const std::string& name) {
  return broadcast_(named, copy_of(tensor, name), root, name);
}

NamedResult broadcast_(const NamedCollectives& named, const torch::Tensor& tensor, int root,
                       const std::string& name) {
  return submitted(named, tensor,
                   {.name = name,
                    .operation = Operation::broadcast,
                    .root = root,
                    .shapes = {in_bytes(shape_of(tensor), tensor)}});
}

NamedResult all_gather(const NamedCollectives& named, const torch::Tensor& tensor, const std::string& name) {
  return with_new_result(named, tensor,
                         {.name = name,
                          .operation = Operation::all_gather,
                          .shapes = {in_bytes(row_of(tensor, name), tensor)},
                          .rows = {tensor.size(0)}});
}

NamedResult all_to_all(const NamedCollectives& named, const torch::Tensor& tensor, const std::string& name,
                       const std::vector<std::int64_t>& splits) {
  const auto row = row_of(tensor, name);
  auto rows = splits;
  if (rows.empty()) {
    if (tensor.size(0) % named.size() != 0)
      throw_invalid_argument("tensor " + name + " has " + std::to_string(tensor.size(0)) +
                             " rows, which are not the same number for each of " +
                             std::to_string(named.size()) + " ranks; say how many go to each");
    rows.assign(static_cast<std::size_t>(named.size()), tensor.size(0) / named.size());
  }
  const auto all = std::accumulate(rows.begin(), rows.end(), std::int64_t{0});
  if (rows.size() != static_cast<std::size_t>(named.size()) || all != tensor.size(0))
    throw_invalid_argument("tensor " + name + " has " + std::to_string(tensor.size(0)) + " rows for " +
                           std::to_string(named.size()) + " ranks; the splits are " +
                           std::to_string(rows.size()) + ", of " + std::to_string(all) + " rows together");
  return with_new_result(named, tensor,
                         {.name = name,
                          .operation = Operation::all_to_all,
                          .shapes = {in_bytes(row, tensor)},
                          .rows = std::move(rows)});
}

NamedResult reduce_scatter(const NamedCollectives& named, const torch::Tensor& tensor,
                           const std::string& name, ReduceOp op, CollectiveOptions options) {
  (void)row_of(tensor, name);
  return with_new_result(named, tensor, reduction(tensor, name, Operation::reduce_scatter, op, options));
}

}  // namespace lockstep
