// A model's tensors with their names, so that a message about one can say which it is.
#pragma once

#include <torch/torch.h>

#include <span>
#include <string>
#include <vector>

namespace lockstep {

struct NamedTensor {
  std::string name;  ///< as in named_parameters(): "fc.weight"
  torch::Tensor tensor;
  bool is_parameter = true;  ///< or else a buffer

  /// As in messages: "parameter fc.weight".
  std::string label() const { return (is_parameter ? "parameter " : "buffer ") + name; }
};

/// Parameters, then buffers, in the module's order. One registered under two names appears twice.
std::vector<NamedTensor> tensors_of(const torch::nn::Module& module);

/// Throws Error{unsupported} if it is no plain array (host_array.h), or a trainable parameter of a type that
/// has no average.
void require_averageable(const NamedTensor& item);

/// The parameters for which a gradient is wanted, or the others; each once: one that is registered under two
/// names has one gradient.
std::vector<NamedTensor> distinct_parameters(std::span<const NamedTensor> tensors, bool trainable);

}  // namespace lockstep
