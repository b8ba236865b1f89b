// A save takes as long as the disk does, and all ranks wait for it. Here they wait until what is to be saved
// is copied; a thread writes the copy while training goes on.
#pragma once

#include <torch/torch.h>

#include <filesystem>
#include <memory>

#include "lockstep/group/group.h"
#include "lockstep/train/checkpoint/checkpoint.h"

namespace lockstep {

/// Writes checkpoints one after the other, at most one at a time: save() begins by waiting for the one
/// before.
///
///   AsyncCheckpoint checkpoint(world);
///   for (...) {
///     ...
///     if (++step % 1000 == 0) checkpoint.save("model.ckpt", ddp, sgd, {.epoch = epoch});
///   }
///   checkpoint.wait();
///
/// Files, and what is promised of them, are those of save_checkpoint(): at any moment there is the old
/// checkpoint or the new one, whole, whatever is killed or full. How a save ended all ranks learn together,
/// in the next save() or wait(). A checkpoint that rank 0 writes is in place as soon as it is written; a
/// sharded one not before that next call, because it takes all ranks to know that every shard is there.
///
/// Rank 0 writes, or every rank its own shard. Whoever writes needs memory for one copy of it, which is kept
/// for the next save; for state that is not sharded also for the archive, while it is written. Thread safety:
/// none. The group may do anything meanwhile: the thread that writes does not use it. A process that forks
/// has one in its child that does nothing.
class AsyncCheckpoint {
 public:
  explicit AsyncCheckpoint(const Group& group);
  AsyncCheckpoint(const AsyncCheckpoint&) = delete;
  AsyncCheckpoint& operator=(const AsyncCheckpoint&) = delete;
  /// Not collective. Waits until this rank has written what it is writing, and says in the log what was lost
  /// without wait(): a failure, or a sharded checkpoint that then does not take its place.
  ~AsyncCheckpoint();

  /// Collective. Waits for the save before; if that failed, throws what wait() would, and begins none. Then
  /// returns when everything is copied: model, optimizer and `info` may change. Throws what save_checkpoint()
  /// does before it writes.
  ///
  /// Cost: a copy of what this rank writes, in main memory. State of an optimizer other than SGD, Adam and
  /// AdamW, libtorch's or those here, is made into an archive at once, which takes longer.
  template <class Model>
  void save(const std::filesystem::path& path, const Model& model, const torch::optim::Optimizer& optimizer,
            const CheckpointInfo& info = {}, const CheckpointOptions& options = {}) {
    begin(path, module_of(model), &optimizer, info, options);
  }
  /// The same without an optimizer.
  template <class Model>
  void save(const std::filesystem::path& path, const Model& model, const CheckpointInfo& info = {}) {
    begin(path, module_of(model), nullptr, info, {});
  }

  /// Collective. Returns when the last save is in place, at once if there is none. If it failed, every rank
  /// throws the same Error, that of save_checkpoint(): the checkpoint before is as it was. It is thrown once.
  void wait();

 private:
  void begin(const std::filesystem::path& path, const torch::nn::Module& module,
             const torch::optim::Optimizer* optimizer, const CheckpointInfo& info,
             const CheckpointOptions& options);

  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep
