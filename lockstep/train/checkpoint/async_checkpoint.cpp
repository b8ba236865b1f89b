#include "lockstep/train/checkpoint/async_checkpoint.h"

#include <string>
#include <utility>

#include "lockstep/base/background_thread.h"
#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/train/checkpoint/checkpoint_save.h"
#include "lockstep/train/tensor/snapshot_memory.h"

namespace lockstep {

struct AsyncCheckpoint::State {
  Group group;
  SnapshotMemory memory{};
  std::unique_ptr<CheckpointSave> save{};      // until it is finished
  std::unique_ptr<BackgroundThread> writer{};  // joined before what it uses goes
};

AsyncCheckpoint::AsyncCheckpoint(const Group& group) : state_(std::make_unique<State>(State{group})) {}

AsyncCheckpoint::~AsyncCheckpoint() {
  if (state_->writer && !state_->writer->runs_here()) {
    (void)state_.release();  // the files are the other process's
    return;
  }
  state_->writer.reset();
  if (!state_->save) return;
  const std::string lost = state_->save->unfinished();
  if (!lost.empty()) log::warning("an AsyncCheckpoint ended without wait(): " + lost);
}

void AsyncCheckpoint::wait() {
  state_->writer.reset();
  const auto save = std::move(state_->save);
  if (save) save->finish();
}

void AsyncCheckpoint::begin(const std::filesystem::path& path, const torch::nn::Module& module,
                            const torch::optim::Optimizer* optimizer, const CheckpointInfo& info,
                            const CheckpointOptions& options) {
  wait();
  auto& [group, memory, save, writer] = *state_;
  save = std::make_unique<CheckpointSave>(
      path, group, CheckpointSave::Content{module, optimizer, info, options.sharded}, &memory);
  if (group.rank() != 0 && !options.sharded) return;
  try {
    writer = std::make_unique<BackgroundThread>("checkpoint", [&to_write = *save] { to_write.write(); });
  } catch (const Error&) {
    save->write();  // no thread to be had, which must not be the end of this rank alone
  }
}

}  // namespace lockstep
