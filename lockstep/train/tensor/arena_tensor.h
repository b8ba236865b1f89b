// Tensors that calls take as they are: in main memory in this rank's arena, where others reach them.
#pragma once

#include <torch/torch.h>

#include "lockstep/group/group.h"

namespace lockstep {

/// A contiguous tensor in this rank's arena, its contents undefined. It may outlive the group.
torch::Tensor arena_tensor(const Group& group, torch::IntArrayRef shape, torch::ScalarType type);

/// The same on `device`: on a GPU any of its memory.
torch::Tensor tensor_for_calls(const Group& group, torch::Device device, torch::IntArrayRef shape,
                               torch::ScalarType type);

}  // namespace lockstep
