// What DistributedDataParallel does with a module whatever its type is: it makes the replicas equal, sets the
// hooks that average gradients, and before each forward brings buffers, a changed model and ranks without
// inputs in order.
#pragma once

#include <torch/torch.h>

#include <functional>
#include <memory>
#include <vector>

#include "lockstep/group/group.h"
#include "lockstep/train/data_parallel/communication_hook.h"
#include "lockstep/train/data_parallel/gradient_hooks.h"
#include "lockstep/train/replicas/step_watch.h"
#include "lockstep/train/tensor/shared_heap.h"

namespace lockstep {

/// Alike on all ranks.
struct DataParallelOptions {
  /// Gradients are averaged in buckets; one is full when it holds at least so many bytes. Small buckets begin
  /// early, large ones cost fewer waits.
  std::size_t first_bucket_bytes = std::size_t{1} << 20;
  std::size_t bucket_cap_bytes = std::size_t{25} << 20;
  /// Each training forward begins with rank 0's buffers (batch norm's running statistics). Costs one
  /// broadcast of them all, and that ranks wait for rank 0 there.
  bool broadcast_buffers = true;
  /// A backward may leave parameters without a gradient, other ones on each rank. One that no rank has used
  /// keeps its grad() as it was.
  bool find_unused_parameters = false;
  /// Every backward is like the first: the same parameters get a gradient, each as often. Serves parameters
  /// that get none, and those that get several in one pass (checkpointed parts that share them).
  bool static_graph = false;
  /// Opens a SharedHeap for this process, unless it has one or some ranks are on other hosts: what libtorch
  /// allocates on the CPU is used again then, without the page faults that new memory costs at each step.
  bool shared_heap = true;
  /// What becomes of a backward with gradients that are infinite or not numbers; see non_finite.h. With skip
  /// no parameter has a gradient after it, on any rank, so that an optimizer's step changes nothing.
  /// Gradients that are sparse are not looked at. Costs one more look at each gradient, unless they are
  /// ignored.
  NonFinite non_finite = NonFinite::ignore;
  /// How gradients become everybody's; null: the average as it is. See communication_hook.h, power_sgd.h.
  std::shared_ptr<CommunicationHook> communication_hook = nullptr;
};

/// For tests alone, which replace a right part of the machine by a wrong one to see that it is noticed.
struct DataParallelSeams {
  bool broadcast = true;
  bool copy_over_gradients = false;
};

struct JoinOptions {
  /// Gradients are divided by the number of all ranks, instead of those that still have inputs.
  bool divide_by_initial_size = false;
  /// As soon as a rank has no inputs left, every rank throws Error{aborted} naming it.
  bool throw_on_early_termination = false;
};

/// Thread safety: as the module's.
class DataParallelEngine {
 public:
  /// Collective. Throws as DistributedDataParallel does.
  DataParallelEngine(std::shared_ptr<torch::nn::Module> module, const Group& group,
                     const DataParallelOptions& options, const DataParallelSeams& seams);
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
  DataParallelSeams seams_;
  std::unique_ptr<SharedHeap> heap_;
  std::shared_ptr<GradientHooks> hooks_;  // null in a group of one, and while ranks' models differ
  std::optional<Joining> joining_;
  int contributors_;  // ranks that have inputs, or what gradients are divided by instead
  int no_sync_ = 0;
  StillParameters still_;
};

}  // namespace lockstep
