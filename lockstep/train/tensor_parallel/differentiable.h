// Collectives and messages through which gradients flow, for models that are spread over ranks by hand.
#pragma once

#include <torch/torch.h>

#include <vector>

#include "lockstep/group/group.h"

/// Each call returns a new tensor and is over when it returns; its backward is a call of the same ranks, in the reverse order of
/// the forwards, and so all ranks of a group run backwards through the same ones. Tensors of floating point, on any
/// device (tensor_collectives.h); those with gaps are copied. Errors as in tensor_collectives.h.
/// Source: the four functions of Shoeybi et al. 2019, "Megatron-LM"; torch.distributed.nn.functional.
namespace lockstep::differentiable {

/// The sum over all ranks, on each. Backward: the sum of all ranks' gradients.
torch::Tensor all_reduce(const Group& group, const torch::Tensor& tensor);
/// All ranks' blocks, one after the other in dimension `dim`; blocks are of the same sizes. Backward: the sum of the gradients of this
/// rank's block.
torch::Tensor all_gather(const Group& group, const torch::Tensor& tensor, std::int64_t dim = 0);
/// This rank's block in dimension `dim` of the sum over all ranks. size() divides its length. Backward: all ranks' gradients.
torch::Tensor reduce_scatter(const Group& group, const torch::Tensor& tensor, std::int64_t dim = 0);

/// Where ranks have the same tensor and go on differently: the tensor itself. Backward: the sum of all ranks' gradients.
torch::Tensor copy(const Group& group, const torch::Tensor& tensor);
/// Where ranks' parts become one: the sum. Backward: the gradient, which is the same on all ranks.
torch::Tensor reduce(const Group& group, const torch::Tensor& tensor);
/// This rank's block in dimension `dim` of a tensor that all have. size() divides its length. Backward: all ranks' blocks.
torch::Tensor scatter(const Group& group, const torch::Tensor& tensor, std::int64_t dim = -1);
/// All ranks' blocks, where what follows is the same on all. Backward: this rank's block of the gradient.
torch::Tensor gather(const Group& group, const torch::Tensor& tensor, std::int64_t dim = -1);

/// Sends to one rank, which calls recv(). Returns a 0 that is to be part of the loss of this rank (`loss + sent`, or
/// `sent.backward()`): its backward receives the gradient of what was sent.
torch::Tensor send(const Group& group, const torch::Tensor& tensor, int destination, int tag = 0);
/// `like`: of the sizes and the type of what comes; its elements are not looked at. Backward: sends the gradient to the source.
torch::Tensor recv(const Group& group, const torch::Tensor& like, int source, int tag = 0);

}  // namespace lockstep::differentiable
