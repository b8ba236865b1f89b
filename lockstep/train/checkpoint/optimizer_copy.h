// libtorch's optimizers cannot be copied, and writing one as an archive takes several times as long as
// copying its tensors. So a save that must not keep the training waiting copies these into an optimizer of
// the same class, and makes the archive from that later.
#pragma once

#include <torch/torch.h>

#include <memory>

#include "lockstep/train/optimizer/parameter_state.h"
#include "lockstep/train/tensor/snapshot_memory.h"

namespace lockstep {

/// Options and state of `optimizer`, whose save() writes what that of `optimizer` does. It refers to the same
/// parameters, and is to be saved, not to be stepped. Its state lies in `memory`. Null for an optimizer of a
/// class of which nothing is known: libtorch's SGD, Adam and AdamW are, and those made from them here.
std::unique_ptr<torch::optim::Optimizer> copy_of(const torch::optim::Optimizer& optimizer,
                                                 SnapshotMemory& memory);

/// Of libtorch's class whose state `optimizer` has, with `groups` of other parameters and the options of its own groups, as many;
/// without state. Null as above.
std::unique_ptr<torch::optim::Optimizer> optimizer_like(const torch::optim::Optimizer& optimizer,
                                                        const ParameterGroups& groups);

}  // namespace lockstep
