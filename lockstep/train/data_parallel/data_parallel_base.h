// What DistributedDataParallel is whatever the type of its module: so that programs that use it compile what
// their module's type is needed for, and nothing else.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <functional>
#include <memory>

#include "lockstep/group/group.h"
#include "lockstep/trace/traced_range.h"
#include "lockstep/train/data_parallel/data_parallel_options.h"

namespace lockstep {

class DataParallelEngine;
class GradientHooks;

/// One forward, from what has to be alike on all ranks before it until somebody watches over its backward.
class AveragedForward {
 public:
  /// Collective, unless the backward is this rank's own affair.
  explicit AveragedForward(DataParallelEngine& engine);

  /// Whether the backward is one to average.
  bool is_averaged() const { return hooks_ != nullptr; }
  /// A backward that comes through `output` is one.
  void watch(const torch::Tensor& output);
  /// If nothing could be watched, one of the next backwards is.
  void end();

 private:
  TracedRange range_{"forward"};
  std::uint64_t begin_ns_;
  GradientHooks* hooks_;
  bool is_watched_ = false;
};

class DataParallelBase {
 public:
  /// While the result lives, forwards and their backwards do not communicate: gradients add up in grad(). The
  /// next backward of a forward outside averages the sums. For batches that do not fit in memory at once.
  [[nodiscard]] std::shared_ptr<void> no_sync();

  /// Runs `body`, which trains on this rank's inputs, however many there are: collective. Ranks without
  /// inputs take part in the others' steps with nothing, and gradients are divided by the number of those
  /// that have some; in the end all have the model of those that trained last. An optimizer's state of a rank
  /// that ended earlier is of its own last step. Each averaged forward has one backward.
  /// Cost: one more meeting of all ranks before each forward.
  void join(const std::function<void()>& body, const JoinOptions& options = {});

  /// Backwards that NonFinite::skip left without gradients, since the model was wrapped or last changed.
  std::uint64_t skipped() const;

  /// Whether this wrapper has opened a SharedHeap.
  bool has_opened_heap() const;

  /// Into the module. Throws Error{invalid_argument} if a tensor there has another shape or type, and leaves
  /// all as it was.
  void load(torch::serialize::InputArchive& archive);

 protected:
  DataParallelBase(std::shared_ptr<torch::nn::Module> module, const Group& group,
                   const DataParallelOptions& options);
  DataParallelBase(DataParallelBase&&) noexcept = default;
  DataParallelBase& operator=(DataParallelBase&&) noexcept = default;
  DataParallelBase(const DataParallelBase&) = delete;
  DataParallelBase& operator=(const DataParallelBase&) = delete;
  ~DataParallelBase() = default;

  AveragedForward begin_forward() { return AveragedForward(*engine_); }

 private:
  std::shared_ptr<DataParallelEngine> engine_;
};

}  // namespace lockstep
