#include "lockstep/train/optimizer/state_of_parameter.h"

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

}  // namespace lockstep
