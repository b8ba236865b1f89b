// Which tensors a model has, and which of them the ranks can have in common.
#pragma once

#include <torch/torch.h>

#include <span>
#include <string>
#include <vector>

#include "lockstep/train/replicas/named_tensor.h"

namespace lockstep {

/// Parameters, then buffers, in the module's order. One registered under two names appears twice.
std::vector<NamedTensor> tensors_of(const torch::nn::Module& module);

/// The buffers alone, to be written: autograd does not count that as a change of what it has kept for backward.
std::vector<NamedTensor> buffers_of(const torch::nn::Module& module);

/// Throws Error{unsupported} if it is no plain array (host_array.h), or a trainable parameter of a type that
/// has no average.
void require_averageable(const NamedTensor& item);

/// The parameters for which a gradient is wanted, or the others; each once: one that is registered under two
/// names has one gradient.
std::vector<NamedTensor> distinct_parameters(std::span<const NamedTensor> tensors, bool trainable);

/// Throws Error{invalid_argument} where one of these wants a gradient now, which `who` knows nothing of.
void require_frozen(std::span<const NamedTensor> frozen, const std::string& who);

}  // namespace lockstep
