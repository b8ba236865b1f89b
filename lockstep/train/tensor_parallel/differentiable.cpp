#include "lockstep/train/tensor_parallel/differentiable.h"

#include <c10/util/StringUtil.h>
#include <torch/csrc/autograd/custom_function.h>

#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/train/tensor/tensor_collectives.h"

namespace lockstep::differentiable {
namespace {

using torch::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// What a backward needs besides gradients.
struct Call : torch::CustomClassHolder {
  explicit Call(Group in) : group(std::move(in)) {}
  Group group;
  std::int64_t dim = 0;
  int peer = 0, tag = 0;
  Tensor like;
};
using CallPointer = c10::intrusive_ptr<Call>;

CallPointer call_in(const Group& group, std::int64_t dim = 0) {
  auto call = c10::make_intrusive<Call>(group);
  call->dim = dim;
  return call;
}

void keep(AutogradContext* context, const CallPointer& call) {
  context->saved_data["call"] = c10::IValue::make_capsule(call);
}
const Call& kept(AutogradContext* context) {
  return static_cast<const Call&>(*context->saved_data["call"].toCapsule());
}

Tensor summed(const Group& group, const Tensor& tensor) {
  const Tensor sum = tensor.detach().clone(torch::MemoryFormat::Contiguous);
  lockstep::all_reduce(group, sum).wait();
  return sum;
}

Tensor joined(const Group& group, const Tensor& tensor, std::int64_t dim) {
  const Tensor mine = tensor.detach().contiguous();
  std::vector<std::int64_t> sizes = mine.sizes().vec();
  sizes.insert(sizes.begin(), group.size());
  const Tensor all = torch::empty(sizes, mine.options());
  lockstep::all_gather(group, mine, all).wait();
  return dim == 0 ? all.flatten(0, 1) : torch::cat(all.unbind(0), dim);
}

std::int64_t block_of(const Group& group, const Tensor& tensor, std::int64_t dim) {
  const std::int64_t length = tensor.size(dim);
  if (length % group.size() != 0)
    throw_invalid_argument(c10::str("dimension ", dim, " of a tensor ", tensor.sizes(), " is ", length,
                                    " long, which ", group.size(), " ranks do not divide"));
  return length / group.size();
}

Tensor own_block(const Group& group, const Tensor& tensor, std::int64_t dim) {
  const std::int64_t block = block_of(group, tensor, dim);
  return tensor.detach().narrow(dim, group.rank() * block, block).contiguous();
}

Tensor summed_block(const Group& group, const Tensor& tensor, std::int64_t dim) {
  const std::int64_t block = block_of(group, tensor, dim);
  // Blocks of ranks one after the other in memory.
  const Tensor input =
      dim == 0 ? tensor.detach().contiguous() : torch::stack(tensor.detach().split(block, dim));
  std::vector<std::int64_t> sizes = tensor.sizes().vec();
  sizes[static_cast<std::size_t>(dim)] = block;
  const Tensor output = torch::empty(sizes, tensor.options().requires_grad(false));
  lockstep::reduce_scatter(group, input, output).wait();
  return output;
}

/// One of the functions, by what it does forward and backward.
template <Tensor (*ahead)(const Call&, const Tensor&), Tensor (*back)(const Call&, const Tensor&)>
struct Through : torch::autograd::Function<Through<ahead, back>> {
  static Tensor forward(AutogradContext* context, const CallPointer& call, const Tensor& tensor) {
    keep(context, call);
    return ahead(*call, tensor);
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    return {Tensor(), back(kept(context), gradients[0])};
  }
};

Tensor sum(const Call& call, const Tensor& tensor) { return summed(call.group, tensor); }
Tensor itself(const Call& /*call*/, const Tensor& tensor) { return tensor.view_as(tensor); }
Tensor whole(const Call& call, const Tensor& tensor) { return joined(call.group, tensor, call.dim); }
Tensor part(const Call& call, const Tensor& tensor) { return own_block(call.group, tensor, call.dim); }
Tensor summed_part(const Call& call, const Tensor& tensor) {
  return summed_block(call.group, tensor, call.dim);
}

Tensor sent_away(const Call& call, const Tensor& tensor) {
  lockstep::send(call.group, tensor.detach().contiguous(), call.peer, call.tag).wait();
  return torch::zeros({}, tensor.options().requires_grad(false));
}
Tensor received(const Call& call, const Tensor& /*like*/) {
  const Tensor tensor = torch::empty(call.like.sizes(), call.like.options().requires_grad(false));
  lockstep::recv(call.group, tensor, call.peer, call.tag).wait();
  return tensor;
}

template <Tensor (*ahead)(const Call&, const Tensor&), Tensor (*back)(const Call&, const Tensor&)>
Tensor through(const CallPointer& call, const Tensor& tensor) {
  if (!tensor.defined()) throw_invalid_argument("a tensor is undefined");
  return Through<ahead, back>::apply(call, tensor);
}

std::int64_t dimension_of(const Tensor& tensor, std::int64_t dim) {
  return tensor.defined() ? at::maybe_wrap_dim(dim, tensor.dim()) : 0;
}

/// Of a message: gradients lie apart from what is sent.
CallPointer message(const Group& group, const Tensor& like, int peer, int tag) {
  auto call = call_in(group);
  call->peer = peer;
  call->tag = tag;
  call->like = like.defined() ? like.detach() : like;
  return call;
}

}  // namespace

Tensor all_reduce(const Group& group, const Tensor& tensor) {
  return through<sum, sum>(call_in(group), tensor);
}
Tensor all_gather(const Group& group, const Tensor& tensor, std::int64_t dim) {
  return through<whole, summed_part>(call_in(group, dimension_of(tensor, dim)), tensor);
}
Tensor reduce_scatter(const Group& group, const Tensor& tensor, std::int64_t dim) {
  return through<summed_part, whole>(call_in(group, dimension_of(tensor, dim)), tensor);
}
Tensor copy(const Group& group, const Tensor& tensor) { return through<itself, sum>(call_in(group), tensor); }
Tensor reduce(const Group& group, const Tensor& tensor) {
  return through<sum, itself>(call_in(group), tensor);
}
Tensor scatter(const Group& group, const Tensor& tensor, std::int64_t dim) {
  return through<part, whole>(call_in(group, dimension_of(tensor, dim)), tensor);
}
Tensor gather(const Group& group, const Tensor& tensor, std::int64_t dim) {
  return through<whole, part>(call_in(group, dimension_of(tensor, dim)), tensor);
}

Tensor send(const Group& group, const Tensor& tensor, int destination, int tag) {
  return through<sent_away, received>(message(group, tensor, destination, tag), tensor);
}

Tensor recv(const Group& group, const Tensor& like, int source, int tag) {
  if (!like.defined()) throw_invalid_argument("a tensor is undefined");
  // Something has to want a gradient, so that there is a backward.
  const Tensor root = torch::zeros({}, like.options().requires_grad(like.is_floating_point()));
  return through<received, sent_away>(message(group, like, source, tag), root);
}

}  // namespace lockstep::differentiable
