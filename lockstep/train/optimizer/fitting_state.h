// State of an optimizer that was loaded may be that of another model, or of another optimizer: seen here,
// before memory is taken for what it is not.
#pragma once

#include <functional>

#include "lockstep/train/optimizer/parameter_state.h"

namespace lockstep {

/// Calls `load`, which makes `groups` and `states` an optimizer's that was saved: a parameter that had no
/// state then has none. Where it throws, and where something of it is no state of its parameter
/// (Error{invalid_argument}) or are options that are not done here (Error{unsupported}), everything is as
/// before.
void load_fitting(ParameterGroups& groups, ParameterStates& states, const std::function<void()>& load);

}  // namespace lockstep
