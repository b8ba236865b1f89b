// A load in two parts, for a model that is in parts on several ranks: one of them loads the whole of it, and what else the file says
// is for all.
#pragma once

#include <torch/torch.h>

#include <filesystem>
#include <string>

#include "lockstep/group/group.h"
#include "lockstep/train/checkpoint/checkpoint.h"

namespace lockstep {

/// Collective. As load_checkpoint(). Returns what info_of() understands.
std::string load_contents(const std::filesystem::path& path, const Group& group,
                          const torch::nn::Module& module, torch::optim::Optimizer* optimizer);

/// What load_checkpoint() returns on rank `rank` of a group of any size.
CheckpointInfo info_of(const std::string& contents, int rank);

}  // namespace lockstep
