// Gradients that are infinite or not numbers: which, and whose they were.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <span>

#include "lockstep/group/group.h"
#include "lockstep/train/replicas/named_tensor.h"
#include "lockstep/train/replicas/non_finite.h"

namespace lockstep {

/// Whether no element is infinite or not a number. Cost: one pass, a second one where its sum is not finite.
bool is_finite(const torch::Tensor& tensor);

/// Collective, on all ranks as soon as one has such a gradient. `mine`: the number of this rank's first; as
/// many as there are if it has none. Throws Error{invalid_argument} naming the first parameter and its rank,
/// but for NonFinite::skip. `step` is for the message.
void take_non_finite(const Group& group, NonFinite policy, std::uint64_t step, std::uint64_t mine,
                     std::span<const NamedTensor> parameters);

/// Collective, unless the policy is to ignore them: whether all gradients of all ranks are finite, as
/// those are that are undefined. If not, take_non_finite(). Cost: is_finite() of each, and one all_reduce of
/// 8 bytes.
bool are_all_finite(const Group& group, NonFinite policy, std::uint64_t step,
                    std::span<const NamedTensor> gradients);

}  // namespace lockstep
