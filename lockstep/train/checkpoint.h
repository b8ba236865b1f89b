// A job that dies goes on from its last checkpoint: model, optimizer and epoch in one file, written by rank 0
// whole or not at all, read by rank 0 and sent to the others, so that no shared file system is needed. The
// file's layout is in docs/checkpoint_format.md.
#pragma once

#include <torch/torch.h>

#include <concepts>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>

#include "lockstep/group/group.h"

namespace lockstep {

struct CheckpointInfo {
  std::uint64_t epoch = 0;                        ///< the next one to train, or whatever the program counts
  std::map<std::string, std::string> metadata{};  ///< anything; keys and values up to 1 MiB
};

/// The module in a module holder, a pointer, a DistributedDataParallel, or itself.
template <class Model>
const torch::nn::Module& module_of(const Model& model) {
  if constexpr (std::derived_from<Model, torch::nn::Module>) {
    return model;
  } else if constexpr (requires { *model.module(); }) {
    return *model.module();
  } else {
    return *model;
  }
}

// What the templates below call. The optimizer may be null.
void save_checkpoint(const std::filesystem::path& path, const Group& group, const torch::nn::Module& module,
                     const torch::optim::Optimizer* optimizer, const CheckpointInfo& info);
CheckpointInfo load_checkpoint(const std::filesystem::path& path, const Group& group,
                               const torch::nn::Module& module, torch::optim::Optimizer* optimizer);

/// Collective. Rank 0 writes parameters, buffers, the optimizer's state and `info` beside `path`, syncs and
/// renames; a file that was there before is replaced, or stays as it was. Everybody returns when the file is
/// in place. First it removes temporaries that a killed process has left there.
///
/// If rank 0 fails, every rank throws the same Error: system (no folder, no permission, disk full),
/// invalid_argument.
///
/// Cost: the model is read twice (checksums) and written once; the others wait, within the group's time-out.
template <class Model>
void save_checkpoint(const std::filesystem::path& path, const Group& group, const Model& model,
                     const torch::optim::Optimizer& optimizer, const CheckpointInfo& info = {}) {
  save_checkpoint(path, group, module_of(model), &optimizer, info);
}
/// The same without an optimizer.
template <class Model>
void save_checkpoint(const std::filesystem::path& path, const Group& group, const Model& model,
                     const CheckpointInfo& info = {}) {
  save_checkpoint(path, group, module_of(model), nullptr, info);
}

/// Collective. Rank 0 reads and checks all of the file before any tensor changes; then it is everybody's.
/// Tensors are found by name. The optimizer also gets the options it had (learning rate, momentum, ...): set
/// those that shall differ afterwards. Removes leftovers as save_checkpoint() does.
///
/// Every rank throws the same Error, and no model has changed: system (no such file); corrupt_data (file,
/// offset, expected, found); invalid_argument (a checkpoint of another model or optimizer: what differs);
/// unsupported (a later version); mismatch (the ranks' own models differ).
template <class Model>
CheckpointInfo load_checkpoint(const std::filesystem::path& path, const Group& group, Model& model,
                               torch::optim::Optimizer& optimizer) {
  return load_checkpoint(path, group, module_of(model), &optimizer);
}
/// The same without an optimizer; its state in the file, if any, is left there.
template <class Model>
CheckpointInfo load_checkpoint(const std::filesystem::path& path, const Group& group, Model& model) {
  return load_checkpoint(path, group, module_of(model), nullptr);
}

/// Not collective; rank 0 does it, others return. Removes what a process that was killed while it saved this
/// checkpoint has left beside it: for the start of a program that will save only later.
void remove_checkpoint_leftovers(const std::filesystem::path& path, const Group& group);

}  // namespace lockstep
