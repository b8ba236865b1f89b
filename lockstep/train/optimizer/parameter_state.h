// What libtorch's optimizers are made of, by shorter names: groups of parameters with options, and what they
// keep for each parameter.
#pragma once

#include <torch/torch.h>

#include <array>
#include <cstddef>
#include <memory>
#include <vector>

namespace lockstep {

using ParameterOptions = torch::optim::OptimizerOptions;
using ParameterState = torch::optim::OptimizerParamState;
using ParameterGroups = std::vector<torch::optim::OptimizerParamGroup>;
/// By parameter (its TensorImpl).
using ParameterStates = ska::flat_hash_map<void*, std::unique_ptr<ParameterState>>;

/// The most arrays that any optimizer keeps for a parameter, each as long as the parameter.
inline constexpr std::size_t most_state_arrays = 2;
using StateArrays = std::array<torch::Tensor, most_state_arrays>;

}  // namespace lockstep
