// A save in three parts, so that the second may run beside training: taking what is to be written, writing
// it, and agreeing with the other ranks that it is there.
//
//                     rank 0                              rank 1
//   constructor       model, state, random states    ->   (its random state)         collective
//   write()           file.tmp -> synced -> file          -                          no word to others
//   finish()          how it ended                   ->   the same                   collective
//
// Sharded, each rank writes its own state in write(), rank 0 also the file that names all shards; but that
// takes its place only in finish(), where it is known that every shard is there.
#pragma once

#include <torch/torch.h>

#include <exception>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/file.h"
#include "lockstep/base/unique_fd.h"
#include "lockstep/train/checkpoint/checkpoint.h"
#include "lockstep/train/checkpoint/checkpoint_file.h"
#include "lockstep/train/checkpoint/shard_index.h"
#include "lockstep/train/replicas/sharded_state.h"
#include "lockstep/train/tensor/snapshot_memory.h"

namespace lockstep {

class CheckpointSave {
 public:
  struct Content {
    const torch::nn::Module& module;
    const torch::optim::Optimizer* optimizer;  ///< may be null
    const CheckpointInfo& info;
    bool is_sharded;
  };
  /// Collective. What is to be written is copied into `memory`; without, it must stay as it is until write()
  /// is done. Throws the same Error on all ranks.
  CheckpointSave(const std::filesystem::path& path, const Group& group, const Content& content,
                 SnapshotMemory* memory);
  CheckpointSave(const CheckpointSave&) = delete;
  CheckpointSave& operator=(const CheckpointSave&) = delete;

  /// Not collective, on any thread; once, before finish(). What goes wrong is kept for that.
  void write() noexcept;
  /// Collective. If write() failed on any rank, every rank throws that, the checkpoint is the one before, and
  /// nothing else is left.
  void finish();

  /// After write(): what would be lost without finish(); empty if nothing.
  std::string unfinished() const;

 private:
  void take_model(const Content& content, const std::optional<TrainingRecord>& record,
                  SnapshotMemory* memory);
  void take_state(const torch::optim::Optimizer& optimizer, SnapshotMemory* memory);
  void take_slices(const Content& content, SnapshotMemory* memory);
  void write_file();
  void put_in_place();

  std::filesystem::path path_;
  Group group_;
  bool is_sharded_;
  // Of rank 0: the file.
  CheckpointImage image_{CheckpointHeader{}};
  std::vector<torch::Tensor> tensors_;  // which the image borrows
  std::string optimizer_name_;
  std::function<std::string()> optimizer_content_;  // null: there is no optimizer
  std::optional<FileReplacement> file_;
  std::exception_ptr failure_;
  // Of every rank, where each has its own state.
  ShardIndex index_;
  std::vector<SliceState> states_;  // which the shard borrows
  std::optional<CheckpointImage> shard_;
  UniqueFd lock_;  // of the shard, so that nobody takes it for a leftover
  std::exception_ptr shard_failure_;
};

}  // namespace lockstep
