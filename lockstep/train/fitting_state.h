// State of an optimizer that was loaded may be that of another model, or of another optimizer: seen here,
// before memory is taken for what it is not.
#pragma once

#include <string>

#include "lockstep/train/update_rule.h"

namespace lockstep {

/// Whether `state` is what the optimizer of these options keeps for a parameter of this size.
bool is_state_of(const torch::Tensor& parameter, const ParameterState& state,
                 const ParameterOptions& options);
/// Error{invalid_argument}: why it is not. `label`: the parameter's.
[[noreturn]] void throw_no_state_of(const torch::Tensor& parameter, const std::string& label,
                                    const ParameterState& state, const ParameterOptions& options);

/// "SGD", "Adam" or "AdamW". Throws Error{unsupported} for others.
std::string kind_of(const ParameterOptions& options);

}  // namespace lockstep
