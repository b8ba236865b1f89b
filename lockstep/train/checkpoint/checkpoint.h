// A job that dies goes on from its last checkpoint: model, optimizer, and where the training was, in one
// file, written by rank 0 whole or not at all, read by rank 0 and sent to the others, so that no shared file
// system is needed. Where the optimizer's state is too much for one rank, each rank writes and reads its own
// part of it, beside that file. The files' layout is in docs/checkpoint_format.md; async_checkpoint.h writes
// them while training goes on.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include "lockstep/group/group.h"
#include "lockstep/train/checkpoint/training_state.h"
#include "lockstep/train/tensor/module_of.h"

namespace lockstep {

struct CheckpointInfo {
  std::uint64_t epoch = 0;  ///< the next one to train, or whatever the program counts
  /// Anything; keys and values up to 1 MiB. Keys that begin with "lockstep." may get a meaning.
  std::map<std::string, std::string> metadata{};
  std::optional<TrainingState> training{};  ///< on all ranks or on none; of the rest rank 0's is saved
};

struct CheckpointOptions {
  /// Each rank writes the state of its own slice into a file beside the checkpoint, and no rank gathers all
  /// of it. For a ShardedOptimizer. Every rank has to see the folder when it is loaded, on any number of
  /// ranks.
  bool sharded = false;
};

// What the templates below call. The optimizer may be null.
void save_checkpoint(const std::filesystem::path& path, const Group& group, const torch::nn::Module& module,
                     const torch::optim::Optimizer* optimizer, const CheckpointInfo& info,
                     const CheckpointOptions& options);
CheckpointInfo load_checkpoint(const std::filesystem::path& path, const Group& group,
                               const torch::nn::Module& module, torch::optim::Optimizer* optimizer);

/// Collective. Rank 0 writes parameters, buffers, the optimizer's state and `info` beside `path`, syncs and
/// renames; a file that was there before is replaced, or stays as it was. Everybody returns when the file is
/// in place. First it removes temporaries that a killed process has left there.
///
/// With options.sharded every rank first writes its part of the state beside its own `path`, as
/// <path>.<token>.shard-<rank>-of-<size>. The checkpoint that was there stays whole until the new one is, and
/// then its shards go. Move or copy a sharded checkpoint with all its files.
///
/// If rank 0 fails, or any rank where all write, every rank throws the same Error: system (no folder, no
/// permission, disk full), invalid_argument (options.sharded without a ShardedOptimizer; a metadata key that
/// is reserved), mismatch (some ranks save a training state, some do not). The checkpoint that was there
/// before can be loaded then, and nothing else is left.
///
/// Cost: the model is read twice (checksums) and written once; the others wait, within the group's time-out.
/// State too: by rank 0, which has all of it in memory twice; sharded by all ranks at the same time.
template <class Model>
void save_checkpoint(const std::filesystem::path& path, const Group& group, const Model& model,
                     const torch::optim::Optimizer& optimizer, const CheckpointInfo& info = {},
                     const CheckpointOptions& options = {}) {
  save_checkpoint(path, group, module_of(model), &optimizer, info, options);
}
/// The same without an optimizer.
template <class Model>
void save_checkpoint(const std::filesystem::path& path, const Group& group, const Model& model,
                     const CheckpointInfo& info = {}) {
  save_checkpoint(path, group, module_of(model), nullptr, info, {});
}

/// Collective. Rank 0 reads and checks all of the file before any tensor changes; then it is everybody's. The
/// result is the same on all ranks but for training->random; training is there if it was saved.
/// Tensors are found by name. The optimizer also gets the options it had (learning rate, momentum, ...): set
/// those that shall differ afterwards. Removes leftovers as save_checkpoint() does.
///
/// Of a sharded one, a ShardedOptimizer reads on each rank what that rank's slice needs, beside the rank's
/// own `path`, into memory of its own first; for other optimizers rank 0 reads all of the state.
///
/// Every rank throws the same Error, and no model has changed: system (no such file, no such shard);
/// corrupt_data (file, offset, expected, found); invalid_argument (a checkpoint of another model or
/// optimizer: what differs); unsupported (a later version); mismatch (the ranks' own models differ).
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

/// Collective. Whether rank 0 finds something at `path`: the same on all ranks.
bool checkpoint_exists(const std::filesystem::path& path, const Group& group);

/// Not collective; rank 0 does it, others return. Removes what a process that was killed while it saved this
/// checkpoint has left beside it, also shards that the checkpoint does not name, unless a save is at work on
/// them: for the start of a program that will save only later.
void remove_checkpoint_leftovers(const std::filesystem::path& path, const Group& group);

}  // namespace lockstep
