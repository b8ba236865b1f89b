// An embedding touches few of its rows in a step, and may have gradients of those rows alone; they travel
// another way than dense ones (sparse_average.h), which has to be known before the first backward.
#pragma once

#include <torch/torch.h>

#include <span>
#include <vector>

#include "lockstep/train/replicas/named_tensor.h"

namespace lockstep {

/// For each of `tensors`, whether its gradients are sparse: the weights of the module's embeddings that say
/// so.
std::vector<char> sparse_gradients(const torch::nn::Module& module, std::span<const NamedTensor> tensors);

}  // namespace lockstep
