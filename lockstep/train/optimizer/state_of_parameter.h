// What an optimizer keeps for a parameter, if it is that parameter's.
#pragma once

#include <torch/torch.h>

#include <cstddef>
#include <string>

#include "lockstep/train/optimizer/parameter_state.h"

namespace lockstep {

/// Whether `state` is what the optimizer of these options keeps for a parameter of this size.
bool is_state_of(const torch::Tensor& parameter, const ParameterState& state,
                 const ParameterOptions& options);
/// Error{invalid_argument}: why it is not. `label`: the parameter's.
[[noreturn]] void throw_no_state_of(const torch::Tensor& parameter, const std::string& label,
                                    const ParameterState& state, const ParameterOptions& options);

/// "parameter 3 of group 0": of what is known of an optimizer's parameters without their module.
std::string label_of(std::size_t parameter, std::size_t group);

}  // namespace lockstep
