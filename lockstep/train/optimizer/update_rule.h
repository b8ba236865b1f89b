// libtorch's optimizers, as kernel/update.h does them: what their options say, and what they keep for each
// parameter. State has libtorch's form, so that it is saved, loaded and exchanged with theirs.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lockstep/kernel/update.h"
#include "lockstep/train/optimizer/parameter_state.h"

namespace lockstep {

/// Throws Error{unsupported} unless `options` are SGDOptions, AdamOptions or AdamWOptions, without amsgrad.
void require_known(const ParameterOptions& options);

/// "SGD", "Adam" or "AdamW". Throws as require_known() does.
std::string kind_of(const ParameterOptions& options);
/// Whether `state` is of the kind that such an optimizer keeps.
bool is_of_kind(const ParameterState& state, const ParameterOptions& options);

/// How many arrays the optimizer keeps.
std::size_t state_arrays(const ParameterOptions& options);

/// The arrays in `state`; undefined where there are none yet.
StateArrays arrays_of(const ParameterState& state, const ParameterOptions& options);
/// Steps that the parameter has had: of Adam and AdamW as they count, of SGD 0 or 1.
std::uint64_t steps_of(const ParameterState& state, const ParameterOptions& options);
/// State of that form.
std::unique_ptr<ParameterState> make_state(const ParameterOptions& options, const StateArrays& arrays,
                                           std::uint64_t steps);
void set_steps(ParameterState& state, const ParameterOptions& options, std::uint64_t steps);

/// One step of a parameter that has had `steps` before.
kernel::UpdateStep step_of(const ParameterOptions& options, std::uint64_t steps);

/// One step of a slice of a parameter; `steps`: that it has had before. `state`: the slice's part of each
/// array.
void update_slice(const ParameterOptions& options, const kernel::UpdateSlice& slice,
                  std::span<std::byte* const, most_state_arrays> state, std::uint64_t steps);

/// A slice of parameters on any device, in one dimension; its gradient, of the type of state, which is written over; of halves
/// the parameters in f32, else undefined.
struct TensorSlice {
  torch::Tensor gradient, parameters, master;
};
/// The same by libtorch's operations, for GPUs: within the rounding of f32, or f64.
void update_tensor(const ParameterOptions& options, const TensorSlice& slice, const StateArrays& state,
                   std::uint64_t steps);

/// Makes `to` the same as `from`, which is of its kind.
void assign_options(ParameterOptions& to, const ParameterOptions& from);

/// The type of state and sums: f64 for f64, f32 otherwise.
inline torch::ScalarType state_type(torch::ScalarType parameter) {
  return parameter == torch::kFloat64 ? torch::kFloat64 : torch::kFloat32;
}

}  // namespace lockstep
