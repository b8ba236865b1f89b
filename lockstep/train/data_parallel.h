// Trains one model on all ranks of a group: each holds a replica and computes the gradients of its own share
// of a batch; the average of these is the gradient of the whole batch. The average is computed while backward
// runs, so that most of the communication costs no time.
#pragma once

#include <torch/torch.h>

#include <memory>
#include <utility>
#include <vector>

#include "lockstep/group/group.h"
#include "lockstep/trace/recorder.h"
#include "lockstep/train/gradient_hooks.h"
#include "lockstep/train/output_tensors.h"

namespace lockstep {

struct DataParallelOptions {
  /// Gradients are averaged in buckets; one is full when it holds at least so many bytes. Small buckets begin
  /// early, large ones cost fewer waits. The same on all ranks.
  std::size_t first_bucket_bytes = std::size_t{1} << 20;
  std::size_t bucket_cap_bytes = std::size_t{25} << 20;
};

/// For tests alone, which replace a right part of the machine by a wrong one to see that it is noticed.
struct DataParallelSeams {
  ReduceBucket reduce = average_bucket;
  bool broadcast = true;
  bool copy_over_gradients = false;
};

/// Collective. What the class below does with its model: compares, broadcasts, sets hooks (null if alone).
std::shared_ptr<GradientHooks> synchronise(const torch::nn::Module& module, const Group& group,
                                           const DataParallelOptions& options,
                                           const DataParallelSeams& seams);

/// Making one is collective: rank 0's parameters and buffers are everybody's afterwards. Then use it in place
/// of the model for the forward: after `ddp(input)` in training mode with gradients on, the backward pass
/// through the output leaves in every parameter's grad() the average over all ranks. Where the loss is a mean
/// over the rank's samples, and all ranks have as many, that is what one process with all samples would get.
///
/// - Forwards in eval mode or under NoGradGuard, and their backwards, do not communicate: one rank alone may
///   evaluate. All others every rank runs equally often.
/// - Every trainable parameter takes part in each such backward, or every rank throws, naming those that did
///   not. Frozen ones are left alone.
/// - A gradient lies in a bucket that the next backward writes again: clone it to keep it. Both forms of
///   zero_grad() work. Without zero_grad() gradients add up, and grad() is the average of the ranks' sums.
/// - Buffers (batch norm's running statistics) are each rank's own after construction: with statistics of
///   different samples they drift apart, and a checkpoint holds rank 0's. Load one, or broadcast() them,
///   before an evaluation that is split over ranks.
/// - Convert (.to()), freeze and resize before wrapping.
/// - An exception that ends a backward early closes the group: the others wait for this rank's gradients.
/// - torch::autograd::grad() of the parameters gives this rank's own gradients, not the average.
/// - In a group of one it is the model, and nothing else.
///
/// Thread safety: as the module's; one backward pass at a time.
/// Cost: a copy of the gradients per step (into shared memory), and what their all_reduce leaves uncovered;
/// each step is in the group's record as a TrainingStepEvent.
template <class Module>
class DistributedDataParallel {
 public:
  /// Throws Error: mismatch if the ranks' models or options differ (which tensor, on which rank, how);
  /// unsupported if a parameter or buffer is not in main memory, or a trainable parameter of a type that has
  /// no average; invalid_argument if the model is wrapped already.
  DistributedDataParallel(std::shared_ptr<Module> module, const Group& group,
                          const DataParallelOptions& options = {}, const DataParallelSeams& seams = {})
      : module_(std::move(module)), hooks_(synchronise(*module_, group, options, seams)) {}
  DistributedDataParallel(const torch::nn::ModuleHolder<Module>& module, const Group& group,
                          const DataParallelOptions& options = {}, const DataParallelSeams& seams = {})
      : DistributedDataParallel(module.ptr(), group, options, seams) {}

  DistributedDataParallel(DistributedDataParallel&&) noexcept = default;
  DistributedDataParallel& operator=(DistributedDataParallel&&) noexcept = default;
  DistributedDataParallel(const DistributedDataParallel&) = delete;
  DistributedDataParallel& operator=(const DistributedDataParallel&) = delete;
  /// The hooks go; gradients stay as they are.
  ~DistributedDataParallel() = default;

  /// The model's forward.
  template <class... Inputs>
  auto operator()(Inputs&&... inputs) {
    if (!hooks_ || !module_->is_training() || !torch::GradMode::is_enabled()) {
      return module_->forward(std::forward<Inputs>(inputs)...);
    }
    const std::uint64_t begin = trace::now_ns();
    hooks_->check_parameters();
    auto output = module_->forward(std::forward<Inputs>(inputs)...);
    bool watched = false;
    for_each_tensor(output, [&](const torch::Tensor& tensor) { watched |= hooks_->watch(tensor, begin); });
    if (!watched) hooks_->expect_backward(begin);
    return output;
  }

  const std::shared_ptr<Module>& module() const { return module_; }
  std::vector<torch::Tensor> parameters() const { return module_->parameters(); }
  void train(bool on = true) { module_->train(on); }
  void eval() { module_->eval(); }
  bool is_training() const { return module_->is_training(); }
  void zero_grad(bool set_to_none = true) { module_->zero_grad(set_to_none); }

 private:
  std::shared_ptr<Module> module_;
  std::shared_ptr<GradientHooks> hooks_;
};

}  // namespace lockstep
