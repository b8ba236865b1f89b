// An optimizer's state is whatever libtorch's archives say it is. Here it is one string of bytes, looked at
// before it is given to an optimizer, because libtorch finds out only half-way that it does not fit.
#pragma once

#include <torch/torch.h>

#include <string>

namespace lockstep {

/// "SGD", "Adam", ...: libtorch's class whose state it has, or its own, without namespaces.
std::string optimizer_kind(const torch::optim::Optimizer& optimizer);

/// Options and state of each parameter.
std::string optimizer_state(const torch::optim::Optimizer& optimizer);

/// The options of each group alone, and how many parameters it has.
std::string optimizer_options(const torch::optim::Optimizer& optimizer);

/// Throws Error: corrupt_data if `state` is neither such string; invalid_argument if it is of an optimizer
/// with other parameter groups. Messages begin with `where`. Nothing changes.
void require_fitting_state(const std::string& state, const torch::optim::Optimizer& optimizer,
                           const std::string& where);

/// `state` fits.
void restore_optimizer(torch::optim::Optimizer& optimizer, const std::string& state);
/// `options` fit. State stays as it is.
void restore_options(torch::optim::Optimizer& optimizer, const std::string& options);

}  // namespace lockstep
