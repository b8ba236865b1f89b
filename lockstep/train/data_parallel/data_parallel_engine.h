// What DistributedDataParallel does with a module whatever its type is: it makes the replicas equal, sets the
// hooks that average gradients, and before each forward brings buffers, a changed model and ranks without
// inputs in order.
#pragma once

#include <torch/torch.h>

#include <functional>
#include <memory>
#include <optional>

#include "lockstep/group/group.h"
#include "lockstep/train/data_parallel/communication_hook.h"
#include "lockstep/train/data_parallel/data_parallel_options.h"
#include "lockstep/train/data_parallel/gradient_hooks.h"
#include "lockstep/train/replicas/step_watch.h"
#include "lockstep/train/tensor/shared_heap.h"

namespace lockstep {

/// Thread safety: as the module's.
class DataParallelEngine {
 public:
  /// Collective. Throws as DistributedDataParallel does.
  DataParallelEngine(std::shared_ptr<torch::nn::Module> module, const Group& group,
                     const DataParallelOptions& options);
  DataParallelEngine(const DataParallelEngine&) = delete;
  DataParallelEngine& operator=(const DataParallelEngine&) = delete;
  ~DataParallelEngine();

  /// Before a forward. Null if its backward is this rank's own affair, or else who watches over its outputs;
  /// then it is collective.
  GradientHooks* prepare_forward();

  /// Between these the rank accumulates gradients on its own.
  void begin_no_sync() { ++no_sync_; }
  void end_no_sync() { --no_sync_; }

  bool has_opened_heap() const { return heap_ != nullptr; }
  std::uint64_t skipped() const { return hooks_ ? hooks_->skipped() : 0; }

  /// See DistributedDataParallel.
  void load(torch::serialize::InputArchive& archive);
  void join(const std::function<void()>& body, const JoinOptions& options);

 private:
  struct Joining {
    JoinOptions options;
    int source = 0;  // the lowest rank that has inputs
    int active = 0;  // ranks that have inputs
    std::size_t rounds = 0;
    bool all_ranks_threw = false;
  };

  void make_hooks();
  bool needs_hooks() const;
  void follow_model();
  void follow_others();
  void set_contributors(int count);
  bool meet(bool has_inputs);
  void spread_buffers(int source);
  void shadow_the_others();

  std::shared_ptr<torch::nn::Module> module_;
  Group group_;
  DataParallelOptions options_;
  HookClaim hook_claim_;
  std::unique_ptr<SharedHeap> heap_;
  std::shared_ptr<GradientHooks> hooks_;  // null in a group of one, and while ranks' models differ
  std::optional<Joining> joining_;
  int contributors_;  // ranks that have inputs, or what gradients are divided by instead
  int no_sync_ = 0;
  StillParameters still_;
};

}  // namespace lockstep
