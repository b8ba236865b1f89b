#include "lockstep/train/optimizer/option_values.h"

#include <optional>
#include <type_traits>

namespace lockstep {
namespace {

using Values = std::vector<OptionValue>;

Values values_of(const torch::optim::SGDOptions& sgd) {
  return {{"learning rate", sgd.lr()},
          {"momentum", sgd.momentum()},
          {"dampening", sgd.dampening()},
          {"weight decay", sgd.weight_decay()},
          {"nesterov", sgd.nesterov() ? 1.0 : 0.0}};
}

/// Of Adam and AdamW.
template <class Options>
Values values_of_adam(const Options& adam) {
  return {{"learning rate", adam.lr()},
          {"first beta", std::get<0>(adam.betas())},
          {"second beta", std::get<1>(adam.betas())},
          {"epsilon", adam.eps()},
          {"weight decay", adam.weight_decay()},
          {"amsgrad", adam.amsgrad() ? 1.0 : 0.0}};
}
Values values_of(const torch::optim::AdamOptions& adam) { return values_of_adam(adam); }
Values values_of(const torch::optim::AdamWOptions& adam) { return values_of_adam(adam); }

Values values_of(const torch::optim::AdagradOptions& adagrad) {
  return {{"learning rate", adagrad.lr()},
          {"learning rate decay", adagrad.lr_decay()},
          {"weight decay", adagrad.weight_decay()},
          {"initial accumulator value", adagrad.initial_accumulator_value()},
          {"epsilon", adagrad.eps()}};
}

Values values_of(const torch::optim::RMSpropOptions& rmsprop) {
  return {{"learning rate", rmsprop.lr()},  {"alpha", rmsprop.alpha()},
          {"epsilon", rmsprop.eps()},       {"weight decay", rmsprop.weight_decay()},
          {"momentum", rmsprop.momentum()}, {"centered", rmsprop.centered() ? 1.0 : 0.0}};
}

Values values_of(const torch::optim::LBFGSOptions& lbfgs) {
  return {{"learning rate", lbfgs.lr()},
          {"max_iter", static_cast<double>(lbfgs.max_iter())},
          {"max_eval", static_cast<double>(lbfgs.max_eval().value_or(-1))},
          {"tolerance_grad", lbfgs.tolerance_grad()},
          {"tolerance_change", lbfgs.tolerance_change()},
          {"history_size", static_cast<double>(lbfgs.history_size())},
          {"line search", lbfgs.line_search_fn() ? 1.0 : 0.0}};
}

/// Calls `act` with the options as what they are and their name; nothing if they are none of libtorch's.
template <class Act>
auto with_options_of_libtorch(const ParameterOptions& options, const Act& act)
    -> std::optional<std::invoke_result_t<Act, const torch::optim::SGDOptions&, const char*>> {
  using namespace torch::optim;
  if (const auto* sgd = dynamic_cast<const SGDOptions*>(&options)) return act(*sgd, "SGD");
  if (const auto* adam = dynamic_cast<const AdamOptions*>(&options)) return act(*adam, "Adam");
  if (const auto* adamw = dynamic_cast<const AdamWOptions*>(&options)) return act(*adamw, "AdamW");
  if (const auto* adagrad = dynamic_cast<const AdagradOptions*>(&options)) return act(*adagrad, "Adagrad");
  if (const auto* rmsprop = dynamic_cast<const RMSpropOptions*>(&options)) return act(*rmsprop, "RMSprop");
  if (const auto* lbfgs = dynamic_cast<const LBFGSOptions*>(&options)) return act(*lbfgs, "LBFGS");
  return std::nullopt;
}

}  // namespace

Values option_values(const ParameterOptions& options) {
  const auto known =
      with_options_of_libtorch(options, [](const auto& one, const char*) { return values_of(one); });
  if (known) return *known;
  try {
    return {{"learning rate", options.get_lr()}};
  } catch (const c10::Error&) {  // what options without one throw
    return {};
  }
}

std::string kind_of_options(const ParameterOptions& options) {
  return with_options_of_libtorch(options, [](const auto&, const char* name) { return std::string(name); })
      .value_or("other");
}

}  // namespace lockstep
