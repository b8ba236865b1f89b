// A backward pass that left parameters without a gradient which the other ranks wait for: which, and where.
#pragma once

#include <span>
#include <string>

#include "lockstep/group/group.h"
#include "lockstep/train/replicas/named_tensor.h"

namespace lockstep {

/// Collective. `has_gradient`: for each of `parameters`, not zero if this rank has one; on some rank some
/// have none. Every rank throws the same error naming ranks and the first parameter of each: invalid_argument
/// if it is the same on all of them, otherwise mismatch; peer() is the rank if it is one alone. `pass`:
/// "backward #3"; `remedy` ends the message.
[[noreturn]] void throw_missing_gradients(const Group& group, std::span<const NamedTensor> parameters,
                                          std::span<const char> has_gradient, const std::string& pass,
                                          const std::string& remedy);

}  // namespace lockstep
