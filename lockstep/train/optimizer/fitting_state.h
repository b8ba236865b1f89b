// State of an optimizer that was loaded may be that of another model, or of another optimizer: seen here,
// before memory is taken for what it is not.
#pragma once

#include <functional>
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

/// Calls `load`, which makes `groups` and `states` an optimizer's that was saved: a parameter that had no
/// state then has none. Where it throws, and where something of it is no state of its parameter
/// (Error{invalid_argument}) or are options that are not done here (Error{unsupported}), everything is as
/// before.
void load_fitting(ParameterGroups& groups, ParameterStates& states, const std::function<void()>& load);

}  // namespace lockstep
