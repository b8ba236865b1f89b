#include "lockstep/train/optimizer/fitting_state.h"

#include "lockstep/train/optimizer/state_of_parameter.h"
#include "lockstep/train/optimizer/update_rule.h"

namespace lockstep {
namespace {

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
      assign_options(groups[group].options(), *options[group]);
    throw;
  }
}

}  // namespace lockstep
