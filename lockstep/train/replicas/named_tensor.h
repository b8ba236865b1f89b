// A model's tensors with their names, so that a message about one can say which it is.
#pragma once

#include <torch/torch.h>

#include <string>

namespace lockstep {

struct NamedTensor {
  std::string name;  ///< as in named_parameters(): "fc.weight"
  torch::Tensor tensor;
  bool is_parameter = true;  ///< or else a buffer

  /// As in messages: "parameter fc.weight".
  std::string label() const { return (is_parameter ? "parameter " : "buffer ") + name; }
};

}  // namespace lockstep
