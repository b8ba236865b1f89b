// Trains one model on all ranks of a group: each holds a replica and computes the gradients of its own share
// of a batch; the average of these is the gradient of the whole batch. The average is computed while backward
// runs, so that most of the communication costs no time.
#pragma once

#include <torch/torch.h>

#include <memory>
#include <utility>
#include <vector>

#include "lockstep/group/group.h"
#include "lockstep/train/data_parallel/data_parallel_base.h"
#include "lockstep/train/data_parallel/data_parallel_options.h"
#include "lockstep/train/tensor/output_tensors.h"

namespace lockstep {

/// Making one is collective: rank 0's parameters and buffers are everybody's afterwards. Then use it in place
/// of the model for the forward: after `ddp(input)` in training mode with gradients on, the backward pass
/// through the output leaves in every parameter's grad() the average over all ranks. Where the loss is a mean
/// over the rank's samples, and all ranks have as many, that is what one process with all samples would get.
///
/// - Forwards in eval mode or under NoGradGuard, and their backwards, do not communicate: one rank alone may
///   evaluate. All others every rank runs equally often; join() is for inputs that do not divide evenly.
/// - Every trainable parameter takes part in each such backward, or every rank throws, naming those that did
///   not; find_unused_parameters and static_graph allow it. Frozen ones are left alone.
/// - A gradient may lie in a bucket that the next backward writes again, and what a hook keeps of one may be the average in the end: clone
///   it to keep it. Both forms of zero_grad() work. Without zero_grad() gradients add up, and grad() is the average of the ranks' sums.
/// - Buffers (batch norm's running statistics) are rank 0's at the beginning of each training forward. After
///   the last one they differ: load a checkpoint, or broadcast() them, before an evaluation that is split
///   over ranks.
/// - Clip with torch::nn::utils::clip_grad_norm_(ddp.parameters(), ...): the gradients are the average by then.
/// - Embeddings with sparse(true): all rows of all ranks go to every rank, after the other gradients.
/// - A model that is converted (.to()), frozen or thawed later, on all ranks, is wrapped anew by the next
///   training forward: it becomes rank 0's again, and is compared.
/// - Tensors may be on a GPU: gradients stay there where each rank has one of its own and there is an NCCL, or all share one
///   (docs/gpu.md), else they are copied into buckets in main memory as they come, and the average back into grad(). A communication
///   hook sees the buckets. Ranks that are threads of one process need a GPU each: libtorch runs a GPU's backwards one after the other.
/// - An exception that ends a backward early closes the group: the others wait for this rank's gradients.
/// - torch::autograd::grad() of the parameters gives this rank's own gradients, not the average.
/// - In a group of one it is the model, and nothing else.
///
/// Thread safety: as the module's; one backward pass at a time.
/// Cost: what the gradients' all_reduce leaves uncovered; each step is in the group's record as a
/// TrainingStepEvent. Inside a host gradients are averaged where they are, if that is in a SharedHeap (which the
/// wrapper opens unless told not to), and take no memory but their own; otherwise they are copied once, into their buckets.
template <class Module>
class DistributedDataParallel : public DataParallelBase {
 public:
  /// Throws Error: mismatch if the ranks' models or options differ (which tensor, on which rank, how);
  /// unsupported if a parameter or buffer is no plain array (sparse, meta), or a trainable parameter of a
  /// type that has no average; invalid_argument if the model is wrapped already.
  DistributedDataParallel(std::shared_ptr<Module> module, const Group& group,
                          const DataParallelOptions& options = {})
      : DataParallelBase(module, group, options), module_(std::move(module)) {}
  DistributedDataParallel(const torch::nn::ModuleHolder<Module>& module, const Group& group,
                          const DataParallelOptions& options = {})
      : DistributedDataParallel(module.ptr(), group, options) {}

  DistributedDataParallel(DistributedDataParallel&&) noexcept = default;
  DistributedDataParallel& operator=(DistributedDataParallel&&) noexcept = default;
  DistributedDataParallel(const DistributedDataParallel&) = delete;
  DistributedDataParallel& operator=(const DistributedDataParallel&) = delete;
  /// The hooks go; gradients stay as they are.
  ~DistributedDataParallel() = default;

  /// The model's forward.
  template <class... Inputs>
  auto operator()(Inputs&&... inputs) {
    AveragedForward forward = begin_forward();
    auto output = module_->forward(std::forward<Inputs>(inputs)...);
    if (forward.is_averaged())
      for_each_tensor(output, [&](const torch::Tensor& tensor) { forward.watch(tensor); });
    forward.end();
    return output;
  }

  const std::shared_ptr<Module>& module() const { return module_; }
  std::vector<torch::Tensor> parameters() const { return module_->parameters(); }
  auto named_parameters() const { return module_->named_parameters(); }
  std::vector<torch::Tensor> buffers() const { return module_->buffers(); }
  auto named_buffers() const { return module_->named_buffers(); }
  /// The module's, under its own names: files are the same as without the wrapper.
  void save(torch::serialize::OutputArchive& archive) const { module_->save(archive); }
  void train(bool on = true) { module_->train(on); }
  void eval() { module_->eval(); }
  bool is_training() const { return module_->is_training(); }
  void zero_grad(bool set_to_none = true) { module_->zero_grad(set_to_none); }

 private:
  std::shared_ptr<Module> module_;
};

}  // namespace lockstep
