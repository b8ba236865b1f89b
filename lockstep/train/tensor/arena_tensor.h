// Tensors that calls take as they are: in main memory in this rank's arena, where others reach them.
#pragma once

#include <torch/torch.h>

#include "lockstep/group/group.h"

namespace lockstep {

/// A contiguous tensor in this rank's arena, its contents undefined. It may outlive the group.
torch::Tensor arena_tensor(const Group& group, torch::IntArrayRef shape, torch::ScalarType type);

/// The same on `device`; on a GPU that the group's ranks share, memory that calls take without a copy, elsewhere, and in a group of one, any of it. Collective as
/// stays_on_gpu() is. Throws Error as allocate_on_gpu(), and what libtorch does where it has no memory.
torch::Tensor tensor_for_calls(const Group& group, torch::Device device, torch::IntArrayRef shape,
                               torch::ScalarType type);

}  // namespace lockstep
