#include "lockstep/train/fitting_state.h"

#include "lockstep/base/error.h"
#include "lockstep/train/tensor_bytes.h"

namespace lockstep {
namespace {

template <class State>
bool is_a(const ParameterState& state) {
  return dynamic_cast<const State*>(&state) != nullptr;
}

bool is_of_kind(const ParameterState& state, const std::string& kind) {
  if (kind == "SGD") return is_a<torch::optim::SGDParamState>(state);
  if (kind == "Adam") return is_a<torch::optim::AdamParamState>(state);
  return is_a<torch::optim::AdamWParamState>(state);
}

}  // namespace

std::string kind_of(const ParameterOptions& options) {
  require_known(options);
  if (dynamic_cast<const torch::optim::SGDOptions*>(&options) != nullptr) return "SGD";
  return dynamic_cast<const torch::optim::AdamOptions*>(&options) != nullptr ? "Adam" : "AdamW";
}

void require_state_of(const torch::Tensor& parameter, const std::string& label, const ParameterState& state,
                      const ParameterOptions& options) {
  const std::string kind = kind_of(options);
  if (!is_of_kind(state, kind)) {
    throw_invalid_argument("the state of " + label + " is that of another optimizer than " + kind +
                           "; load what " + kind + " has saved");
  }
  const StateArrays arrays = arrays_of(state, options);
  for (std::size_t i = 0; i < state_arrays(options); ++i) {
    if (arrays[i].defined() && arrays[i].sizes() == parameter.sizes()) continue;
    if (!arrays[i].defined() && i == 0) return;  // no step yet
    throw_invalid_argument("the optimizer's state of " + label + ", " + describe(parameter) + ", is " +
                           (arrays[i].defined() ? describe(arrays[i]) : "not whole") +
                           ": that of another model; load what was saved with this one");
  }
}

}  // namespace lockstep
