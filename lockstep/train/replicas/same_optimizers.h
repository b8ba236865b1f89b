// For models that are spread without a wrapper that sees their optimizers (Pipeline, parallel layers, DiLoCo): ranks that step with
// other learning rates or options train on, and nothing fails.
#pragma once

#include <torch/torch.h>

#include "lockstep/group/group.h"

namespace lockstep {

/// Collective: call it once, and after what may have changed one rank's options alone. libtorch's optimizers and the fused ones with
/// all options, others with the learning rate.
/// Throws Error{mismatch}, the same on all ranks: "rank 1's learning rate is 0.01, rank 0's is 0.1". Cost: one all_gather of 24 bytes
/// where they agree.
void require_same_options(const Group& group, const torch::optim::Optimizer& optimizer);

}  // namespace lockstep
