#include "lockstep/train/optimizer/fused_optimizer.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/group/gpu_update.h"
#include "lockstep/train/optimizer/fitting_state.h"
#include "lockstep/train/optimizer/state_of_parameter.h"
#include "lockstep/train/optimizer/update_rule.h"
#include "lockstep/train/tensor/gpu_place.h"
#include "lockstep/train/tensor/gradient_layout.h"
#include "lockstep/train/tensor/tensor_bytes.h"

namespace lockstep {
namespace {

void require_fusible(const torch::Tensor& parameter) {
  require_array(parameter, "a parameter of a fused optimizer");
  const auto type = parameter.scalar_type();
  if ((type != torch::kFloat32 && type != torch::kFloat64) || !parameter.is_non_overlapping_and_dense()) {
    throw Error(ErrorCode::unsupported, "a parameter of a fused optimizer is " + describe(parameter) +
                                            "; parameters are dense, of type f32 or f64");
  }
}

/// What an optimizer keeps for a parameter, made or changed to lie in memory as the parameter does.
struct Prepared {
  ParameterState& state;
  StateArrays arrays;
  std::uint64_t steps = 0;  ///< that the parameter has had
};

/// `label`: the parameter's, where its state is not its own.
template <class Label>
Prepared prepare_state(ParameterStates& states, const torch::Tensor& parameter,
                       const ParameterOptions& options, const Label& label) {
  auto& state = states[parameter.unsafeGetTensorImpl()];
  if (state && !is_state_of(parameter, *state, options))
    throw_no_state_of(parameter, label(), *state, options);
  StateArrays arrays;
  if (state) arrays = arrays_of(*state, options);
  const bool is_new = !arrays[0].defined();
  const std::uint64_t steps = is_new ? 0 : steps_of(*state, options);
  bool fits = !is_new;
  for (std::size_t i = 0; i < state_arrays(options); ++i) {
    if (!is_new && arrays[i].scalar_type() == parameter.scalar_type() && lies_like(arrays[i], parameter))
      continue;
    fits = false;
    arrays[i] = is_new ? torch::zeros_like(parameter)
                       : like_parameter(arrays[i].to(parameter.scalar_type()), parameter);
  }
  if (!fits) state = make_state(options, arrays, steps);
  return {*state, arrays, steps};
}

/// Parameters on GPUs: those of one GPU, and one type, that take the same step do so by one kernel where there is one.
class TogetherOnGpu {
 public:
  /// All lie in memory alike. False where there is no such kernel.
  bool take(const ParameterOptions& options, const torch::Tensor& parameter, const torch::Tensor& gradient,
            const StateArrays& arrays, std::uint64_t steps) {
    const MemoryPlace place = place_on(parameter.device());
    if (!place.is_on_gpu() || !can_update_on_gpu(place.device)) return false;
    const Kind kind{&options, parameter.device(), parameter.scalar_type(), steps};
    auto found = std::ranges::find(lists_, kind, &List::kind);
    if (found == lists_.end()) found = lists_.insert(found, List{.kind = kind, .place = place});
    const auto at = [](const torch::Tensor& array) {
      return array.defined() ? array.mutable_data_ptr() : nullptr;
    };
    found->tensors.push_back({.gradient = gradient.const_data_ptr(),
                              .parameters = parameter.mutable_data_ptr(),
                              .first = at(arrays[0]),
                              .second = at(arrays[1]),
                              .elements = static_cast<std::size_t>(parameter.numel())});
    found->gradients.push_back(gradient);
    return true;
  }
  /// To be called at the end.
  void flush() {
    for (const auto& [kind, place, tensors, gradients] : std::exchange(lists_, {}))
      update_on_gpu(place, reducible_dtype(kind.type).value(), step_of(*kind.options, kind.steps), 1.0,
                    tensors);
  }

 private:
  struct Kind {
    const ParameterOptions* options;
    torch::Device device;
    torch::ScalarType type;
    std::uint64_t steps;
    friend bool operator==(const Kind&, const Kind&) = default;
  };
  struct List {
    Kind kind;
    MemoryPlace place;
    std::vector<TensorUpdate> tensors = {};
    std::vector<torch::Tensor> gradients = {};  // some are copies
  };
  std::vector<List> lists_;  // one or two, but for parameters that miss steps
};

/// All of them lie in memory alike.
void update(const ParameterOptions& options, const torch::Tensor& parameter, const torch::Tensor& gradient,
            const StateArrays& arrays, std::uint64_t steps, TogetherOnGpu& together) {
  if (!parameter.is_cpu()) {
    if (together.take(options, parameter, gradient, arrays, steps)) return;
    StateArrays flat;
    for (std::size_t i = 0; i < state_arrays(options); ++i) flat[i] = in_memory_order(arrays[i]);
    return update_tensor(options,
                         {.gradient = in_memory_order(gradient).clone(),
                          .parameters = in_memory_order(parameter),
                          .master = {}},
                         flat, steps);
  }
  const auto* const source = static_cast<const std::byte*>(gradient.const_data_ptr());
  std::array<std::byte*, most_state_arrays> pointers{};
  for (std::size_t i = 0; i < state_arrays(options); ++i)
    pointers[i] = static_cast<std::byte*>(arrays[i].mutable_data_ptr());
  update_slice(options,
               {.dtype = reducible_dtype(parameter.scalar_type()).value(),
                .elements = static_cast<std::size_t>(parameter.numel()),
                .gradients = std::span(&source, 1),
                .parameters = static_cast<std::byte*>(parameter.mutable_data_ptr())},
               pointers, steps);
}

/// `number`: the group's.
void step_of_group(torch::optim::OptimizerParamGroup& group, std::size_t number, ParameterStates& states,
                   TogetherOnGpu& together) {
  const ParameterOptions& options = group.options();
  require_known(options);
  auto& parameters = group.params();
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    torch::Tensor& parameter = parameters[i];
    if (!parameter.grad().defined()) continue;
    require_fusible(parameter);
    const torch::Tensor gradient = like_parameter(parameter.grad(), parameter);
    StateArrays arrays;
    std::uint64_t steps = 0;
    if (state_arrays(options) > 0) {
      const Prepared prepared =
          prepare_state(states, parameter, options, [&] { return label_of(i, number); });
      steps = prepared.steps;
      arrays = prepared.arrays;
      set_steps(prepared.state, options, steps + 1);
    }
    update(options, parameter, gradient, arrays, steps, together);
    parameter.unsafeGetTensorImpl()->bump_version();
  }
}

}  // namespace

void fused_step(ParameterGroups& groups, ParameterStates& states) {
  const torch::NoGradGuard no_grad;
  TogetherOnGpu together;
  try {
    for (std::size_t group = 0; group < groups.size(); ++group)
      step_of_group(groups[group], group, states, together);
  } catch (const std::exception&) {
    together.flush();  // whose steps were counted
    throw;
  }
  together.flush();
}

}  // namespace lockstep
