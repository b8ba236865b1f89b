#include "lockstep/train/optimizer/fitting_state.h"

#include "lockstep/base/error.h"
#include "lockstep/train/optimizer/update_rule.h"
#include "lockstep/train/tensor/tensor_bytes.h"

namespace lockstep {
namespace {

/// The first array that does not fit; nullptr if none. State of no step has none yet.
const torch::Tensor* misfit(const torch::Tensor& parameter, const StateArrays& arrays,
                            const ParameterOptions& options) {
  if (!arrays[0].defined()) return nullptr;
  for (std::size_t i = 0; i < state_arrays(options); ++i) {
    if (!arrays[i].defined() || arrays[i].sizes() != parameter.sizes()) return &arrays[i];
  }
  return nullptr;
}

void require_fitting(const ParameterGroups& groups, const ParameterStates& states) {
  for (std::size_t group = 0; group < groups.size(); ++group) {
    const auto& parameters = groups[group].params();
    const ParameterOptions& options = groups[group].options();
    require_known(options);
    for (std::size_t number = 0; number < parameters.size(); ++number) {
      const auto found = states.find(parameters[number].unsafeGetTensorImpl());
      if (found == states.end()) continue;
      if (!is_state_of(parameters[number], *found->second, options))
        throw_no_state_of(parameters[number], label_of(number, group), *found->second, options);
    }
  }
}

}  // namespace

std::string label_of(std::size_t parameter, std::size_t group) {
  return "parameter " + std::to_string(parameter) + " of group " + std::to_string(group);
}

bool is_state_of(const torch::Tensor& parameter, const ParameterState& state,
                 const ParameterOptions& options) {
  return is_of_kind(state, options) && misfit(parameter, arrays_of(state, options), options) == nullptr;
}

void throw_no_state_of(const torch::Tensor& parameter, const std::string& label, const ParameterState& state,
                       const ParameterOptions& options) {
  if (!is_of_kind(state, options)) {
    const std::string kind = kind_of(options);
    throw_invalid_argument("the state of " + label + " is that of another optimizer than " + kind +
                           "; load what " + kind + " has saved");
  }
  const StateArrays arrays = arrays_of(state, options);
  const torch::Tensor* const found = misfit(parameter, arrays, options);
  throw_invalid_argument("the optimizer's state of " + label + ", " + describe(parameter) + ", is " +
                         (found != nullptr && found->defined() ? describe(*found) : "not whole") +
                         ": that of another model; load what was saved with this one");
}

void load_fitting(ParameterGroups& groups, ParameterStates& states, const std::function<void()>& load) {
  ParameterStates before;
  before.swap(states);
  std::vector<std::unique_ptr<ParameterOptions>> options;
  for (const auto& group : groups) options.push_back(group.options().clone());
  try {
    load();
    require_fitting(groups, states);
  } catch (...) {
    states.swap(before);
    // The same objects: others may hold on to them.
    for (std::size_t group = 0; group < groups.size(); ++group)
      assign(groups[group].options(), *options[group]);
    throw;
  }
}

}  // namespace lockstep
