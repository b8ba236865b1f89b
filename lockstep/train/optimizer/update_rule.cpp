#include "lockstep/train/optimizer/update_rule.h"

#include <cmath>
#include <variant>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

using torch::optim::AdamOptions;
using torch::optim::AdamParamState;
using torch::optim::AdamWOptions;
using torch::optim::AdamWParamState;
using torch::optim::SGDOptions;
using torch::optim::SGDParamState;

/// Calls `act` with the options as what they are.
template <class Act>
auto with(const ParameterOptions& options, Act act) {
  if (const auto* sgd = dynamic_cast<const SGDOptions*>(&options)) return act(*sgd);
  if (const auto* adam = dynamic_cast<const AdamOptions*>(&options)) return act(*adam);
  if (const auto* adamw = dynamic_cast<const AdamWOptions*>(&options)) return act(*adamw);
  throw Error(ErrorCode::unsupported,
              "only SGD, Adam and AdamW are done here; use libtorch's own optimizer, with "
              "DistributedDataParallel");
}

template <class Options>
constexpr bool is_sgd = std::is_same_v<Options, SGDOptions>;
template <class Options>
using StateOf = std::conditional_t<
    is_sgd<Options>, SGDParamState,
    std::conditional_t<std::is_same_v<Options, AdamWOptions>, AdamWParamState, AdamParamState>>;

void update(const TensorSlice& slice, const torch::Tensor& values, const StateArrays& state,
            const kernel::SgdStep& step) {
  torch::Tensor change = slice.gradient;
  if (step.weight_decay != 0) change.add_(values, step.weight_decay);
  if (step.momentum != 0) {
    const torch::Tensor& velocity = state[0];
    if (step.is_first) {
      velocity.copy_(change);
    } else {
      velocity.mul_(step.momentum).add_(change, 1 - step.dampening);
    }
    change = step.nesterov ? change.add_(velocity, step.momentum) : velocity;
  }
  values.add_(change, -step.learning_rate);
}

void update(const TensorSlice& slice, const torch::Tensor& values, const StateArrays& state,
            const kernel::AdamStep& step) {
  const auto t = static_cast<double>(step.t);
  if (step.is_decoupled) {
    values.mul_(1 - step.learning_rate * step.weight_decay);
  } else if (step.weight_decay != 0) {
    slice.gradient.add_(values, step.weight_decay);
  }
  const auto& [first, second] = state;
  first.mul_(step.beta1).add_(slice.gradient, 1 - step.beta1);
  second.mul_(step.beta2).addcmul_(slice.gradient, slice.gradient, 1 - step.beta2);
  const auto scale = second.sqrt().div_(std::sqrt(1 - std::pow(step.beta2, t))).add_(step.epsilon);
  values.addcdiv_(first, scale, -step.learning_rate / (1 - std::pow(step.beta1, t)));
}

}  // namespace

void require_known(const ParameterOptions& options) {
  with(options, []<class Options>(const Options& known) {
    if constexpr (!is_sgd<Options>) {
      if (known.amsgrad())
        throw Error(ErrorCode::unsupported, "amsgrad is not done here; use libtorch's own optimizer");
    }
  });
}

std::string kind_of(const ParameterOptions& options) {
  require_known(options);
  return with(options, []<class Options>(const Options&) -> std::string {
    if constexpr (is_sgd<Options>) return "SGD";
    return std::is_same_v<Options, AdamWOptions> ? "AdamW" : "Adam";
  });
}

bool is_of_kind(const ParameterState& state, const ParameterOptions& options) {
  return with(options, [&]<class Options>(const Options&) {
    return dynamic_cast<const StateOf<Options>*>(&state) != nullptr;
  });
}

std::size_t state_arrays(const ParameterOptions& options) {
  return with(options, []<class Options>(const Options& known) -> std::size_t {
    if constexpr (is_sgd<Options>) {
      return known.momentum() != 0 ? 1 : 0;
    } else {
      return 2;
    }
  });
}

StateArrays arrays_of(const ParameterState& state, const ParameterOptions& options) {
  return with(options, [&]<class Options>(const Options&) -> StateArrays {
    if constexpr (is_sgd<Options>) {
      return {static_cast<const StateOf<Options>&>(state).momentum_buffer(), torch::Tensor()};
    } else {
      const auto& adam = static_cast<const StateOf<Options>&>(state);
      return {adam.exp_avg(), adam.exp_avg_sq()};
    }
  });
}

std::uint64_t steps_of(const ParameterState& state, const ParameterOptions& options) {
  return with(options, [&]<class Options>(const Options&) -> std::uint64_t {
    if constexpr (is_sgd<Options>) {
      return static_cast<const StateOf<Options>&>(state).momentum_buffer().defined() ? 1 : 0;
    } else {
      return static_cast<std::uint64_t>(static_cast<const StateOf<Options>&>(state).step());
    }
  });
}

std::unique_ptr<ParameterState> make_state(const ParameterOptions& options, const StateArrays& arrays,
                                           std::uint64_t steps) {
  return with(options, [&]<class Options>(const Options&) -> std::unique_ptr<ParameterState> {
    if constexpr (is_sgd<Options>) {
      auto made = std::make_unique<SGDParamState>();
      made->momentum_buffer(arrays[0]);
      return made;
    } else {
      auto made = std::make_unique<StateOf<Options>>();
      made->exp_avg(arrays[0]);
      made->exp_avg_sq(arrays[1]);
      made->step(static_cast<std::int64_t>(steps));
      return made;
    }
  });
}

void set_steps(ParameterState& state, const ParameterOptions& options, std::uint64_t steps) {
  with(options, [&]<class Options>(const Options&) {
    if constexpr (!is_sgd<Options>)
      static_cast<StateOf<Options>&>(state).step(static_cast<std::int64_t>(steps));
  });
}

kernel::UpdateStep step_of(const ParameterOptions& options, std::uint64_t steps) {
  return with(options, [&]<class Options>(const Options& known) -> kernel::UpdateStep {
    if constexpr (is_sgd<Options>) {
      return kernel::SgdStep{.learning_rate = known.lr(),
                             .momentum = known.momentum(),
                             .dampening = known.dampening(),
                             .weight_decay = known.weight_decay(),
                             .nesterov = known.nesterov(),
                             .is_first = steps == 0};
    } else {
      return kernel::AdamStep{.learning_rate = known.lr(),
                              .beta1 = std::get<0>(known.betas()),
                              .beta2 = std::get<1>(known.betas()),
                              .epsilon = known.eps(),
                              .weight_decay = known.weight_decay(),
                              .is_decoupled = std::is_same_v<Options, AdamWOptions>,
                              .t = steps + 1};
    }
  });
}

void update_slice(const ParameterOptions& options, const kernel::UpdateSlice& slice,
                  std::span<std::byte* const, most_state_arrays> state, std::uint64_t steps) {
  std::visit(
      [&]<class Step>(const Step& step) {
        if constexpr (std::is_same_v<Step, kernel::SgdStep>) {
          kernel::update_sgd(slice, step.momentum != 0 ? state[0] : nullptr, step);
        } else {
          kernel::update_adam(slice, state[0], state[1], step);
        }
      },
      step_of(options, steps));
}

void update_tensor(const ParameterOptions& options, const TensorSlice& slice, const StateArrays& state,
                   std::uint64_t steps) {
  const torch::Tensor& values = slice.master.defined() ? slice.master : slice.parameters;
  std::visit([&](const auto& step) { update(slice, values, state, step); }, step_of(options, steps));
  if (slice.master.defined()) slice.parameters.copy_(slice.master);
}

void assign_options(ParameterOptions& to, const ParameterOptions& from) {
  with(from, [&]<class Options>(const Options& known) { static_cast<Options&>(to) = known; });
}

}  // namespace lockstep
