// Data-parallel training as Horovod's users know it: the program wraps its optimizer instead of its model.
// Gradients are averaged while backward computes others, and step() is one step of the optimizer with what
// all ranks have found.
//
//   torch::optim::SGD sgd(net->parameters(), 0.01 * world.size());
//   DistributedOptimizer optimizer(sgd, *net, world);
//   broadcast_parameters(world, *net);
//   ...
//   optimizer.zero_grad();
//   loss(net->forward(x), y).backward();
//   optimizer.step();
//
// The order in which gradients are sent is fixed before, the same on all ranks, so nothing has to be
// negotiated: docs/decisions/0010.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "lockstep/group/group.h"
#include "lockstep/train/horovod/gradient_op.h"
#include "lockstep/train/replicas/named_tensor.h"
#include "lockstep/train/replicas/non_finite.h"

namespace lockstep {

class GradientHooks;
class SharedHeap;

/// Alike on all ranks.
struct DistributedOptimizerOptions {
  /// Backward passes before each step(): their gradients add up, and the last one's backward averages.
  int backward_passes_per_step = 1;
  /// For adasum each rank takes a step of its own, and the steps are brought together; nothing is sent in
  /// backward.
  GradientOp op = GradientOp::average;
  Compression compression = Compression::none;
  /// Gradients are divided by it before they are added up, and their sum by size() / it: for halves, whose
  /// sum may overflow. For GradientOp::average.
  double gradient_predivide_factor = 1.0;
  /// Gradients travel in so many parts of about the same size; 0: in buckets as DistributedDataParallel's.
  int groups = 0;
  /// What becomes of a step with gradients that are infinite or not numbers (for adasum: with such a step of
  /// a rank); see non_finite.h. Costs one more look at each, unless they are ignored.
  NonFinite non_finite = NonFinite::ignore;
  /// See DataParallelOptions.
  bool shared_heap = true;
};

/// Making one is collective; it changes no parameter: see broadcast_parameters(),
/// broadcast_optimizer_state().
///
/// - After the last backward before a step grad() holds the average, so clip before step() as always.
/// - step() with fewer backward passes than were announced averages what is there. A parameter that no rank
///   has used keeps its grad(); for which some have none, these count as zero.
/// - All ranks step() equally often, or the others wait for them until the group's time-out.
/// - The optimizer's options may be changed at any time, through it or through this; schedulers take the
///   optimizer. They are alike on all ranks at the end of each backward that is averaged (for adasum in steps
///   0, 1, 2, 4, 8 and so on, and each 64th), or every rank throws Error{mismatch}: "rank 1's learning rate
///   is 0.01, rank 0's is 0.1".
///
/// Borrows the optimizer. Thread safety, cost and what becomes of sparse gradients: as
/// DistributedDataParallel.
class DistributedOptimizer {
 public:
  /// `module`: for the parameters' names; all trainable parameters of the optimizer are its. Throws Error:
  /// mismatch if ranks' parameters, options or kinds of optimizer differ (which, on which rank, how); invalid_argument for
  /// parameters that are not the module's or that somebody averages already, and options that cannot be;
  /// unsupported (types).
  DistributedOptimizer(torch::optim::Optimizer& optimizer, const torch::nn::Module& module,
                       const Group& group, const DistributedOptimizerOptions& options = {});
  DistributedOptimizer(const DistributedOptimizer&) = delete;
  DistributedOptimizer& operator=(const DistributedOptimizer&) = delete;
  ~DistributedOptimizer();

  /// Collective. Throws Error: invalid_argument if backward ran more often since the last step than
  /// backward_passes_per_step says, and for NonFinite::stop, unless backward has thrown that; and what a
  /// collective fails with.
  torch::Tensor step(const torch::optim::Optimizer::LossClosure& closure = nullptr);
  /// Collective, unless backward has done it. Averages what is in grad() without a step.
  void synchronize();
  void zero_grad(bool set_to_none = true) { optimizer_.zero_grad(set_to_none); }

  torch::optim::Optimizer& optimizer() { return optimizer_; }
  const torch::optim::Optimizer& optimizer() const { return optimizer_; }
  operator torch::optim::Optimizer&() { return optimizer_; }  // NOLINT(google-explicit-constructor)
  // NOLINTNEXTLINE(google-explicit-constructor)
  operator const torch::optim::Optimizer&() const { return optimizer_; }
  std::vector<torch::optim::OptimizerParamGroup>& param_groups() { return optimizer_.param_groups(); }

 private:
  torch::Tensor adasum_step(const torch::optim::Optimizer::LossClosure& closure);
  void leave_out_non_finite();

  torch::optim::Optimizer& optimizer_;
  Group group_;
  DistributedOptimizerOptions options_;
  std::unique_ptr<SharedHeap> heap_;
  std::vector<NamedTensor> parameters_;   // trainable
  std::shared_ptr<GradientHooks> hooks_;  // null where there is nothing to do, and for adasum
  std::uint64_t steps_ = 0;               // of adasum
};

}  // namespace lockstep
