// A model comes as a module, a module holder, a pointer, or in a wrapper; what is done with it is done with
// the module.
#pragma once

#include <torch/torch.h>

#include <concepts>

namespace lockstep {

/// The module in a module holder, a pointer, a DistributedDataParallel, or itself.
template <class Model>
const torch::nn::Module& module_of(const Model& model) {
  if constexpr (std::derived_from<Model, torch::nn::Module>) {
    return model;
  } else if constexpr (requires { *model.module(); }) {
    return *model.module();
  } else {
    return *model;
  }
}

}  // namespace lockstep
