// An optimizer's kernel goes through a parameter, its gradient and its state as plain arrays; all of them
// have to lie in memory in the same order then.
#pragma once

#include <torch/torch.h>

namespace lockstep {

/// Whether `gradient` lies in memory as `parameter` does, element for element.
bool lies_like(const torch::Tensor& gradient, const torch::Tensor& parameter);

/// The gradient itself if it does, or a copy that does: of a sparse one, too.
torch::Tensor like_parameter(const torch::Tensor& gradient, const torch::Tensor& parameter);

/// The tensor's elements in one dimension, in the order in which they lie in memory; of one that has gaps a copy.
torch::Tensor in_memory_order(const torch::Tensor& tensor);

}  // namespace lockstep
