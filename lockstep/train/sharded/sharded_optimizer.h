// An optimizer whose work and memory the ranks share: each keeps the state of its part of the model and
// updates that part, after adding all ranks' gradients for it. So there is no average to wait for in
// backward, and no second pass over the gradients.
#pragma once

#include <torch/torch.h>

#include <vector>

#include "lockstep/train/optimizer/fused_optimizer.h"
#include "lockstep/train/sharded/sharded_optimizer_base.h"

namespace lockstep {

/// Takes the place of torch::optim::SGD, Adam or AdamW, and of DistributedDataParallel: train the module
/// itself, each rank with its samples; step() uses the average of all ranks' gradients.
///
///   ShardedOptimizer<torch::optim::SGD> optimizer(*net, world, torch::optim::SGDOptions(0.1).momentum(0.9));
///   optimizer.zero_grad();
///   loss(net->forward(x), y).backward();
///   optimizer.step();
///
/// - Making one is collective: rank 0's parameters and buffers are everybody's afterwards. So is step().
/// - Ranks on one host have one copy of parameters in main memory from then on: whoever writes to them between steps does
///   it for all. Each has its own again when the optimizer is gone; views of parameters do not outlive it.
/// - Backward may run several times before a step; gradients add up. A parameter for which no rank has a
///   gradient is left alone; for which some have, the others count as zero.
/// - Options may change between steps, by a scheduler too, alike on all ranks.
/// - Buffers (batch norm's running statistics) are each rank's own, as with DistributedDataParallel.
/// - Halves have masters in f32, until state is loaded, or the optimizer is gone: a checkpoint holds the
///   halves, a sharded one both.
/// - save(), load() and checkpoints hold what libtorch's optimizer of that name would have, for any number of
///   ranks. On several hosts, and on GPUs, call gather_state() on all ranks before save(); save_checkpoint() does. Where the state is
///   too large for that, each rank saves its own: CheckpointOptions::sharded.
///
/// - All trainable parameters are on one device. On a GPU each rank has all of them, and the state of its part; step() of several ranks returns when
///   it is over there: a step that others do not take moves no parameter, or is told as one that was cut off.
///
/// Memory: on each host, state and parameters as of one process. Between hosts, and on GPUs, each rank has all parameters
/// and 1/p of the state. Cost of step(): two meetings of the ranks and one pass over gradients, parameters
/// and state inside a host; between hosts a copy of the gradients, reduce_scatter and all_gather.
///
/// Results do not depend on the number of ranks that hold slices, but on the ranks' gradients and their order
/// alone: bit for bit what FusedOptimizer makes of their average, inside a host.
template <Fusible Optimizer>
class ShardedOptimizer : public Optimizer, public ShardedOptimizerBase {
 public:
  /// `parameters` of libtorch's constructor are all trainable ones of `module`. Throws Error: mismatch if the
  /// ranks' models or optimizers differ (in what); unsupported (types, amsgrad); invalid_argument for
  /// parameters that are not the module's.
  template <class Options>
  ShardedOptimizer(const torch::nn::Module& module, const Group& group, const Options& defaults,
                   const ShardedOptions& options = {})
      : Optimizer(trainable_parameters(module), defaults),
        ShardedOptimizerBase(*this, module, group, options) {}
  /// With groups of parameters; those in none stay as they are.
  template <class Options>
  ShardedOptimizer(const torch::nn::Module& module, const Group& group,
                   const std::vector<torch::optim::OptimizerParamGroup>& groups, const Options& defaults,
                   const ShardedOptions& options = {})
      : Optimizer(groups, defaults), ShardedOptimizerBase(*this, module, group, options) {}

  /// Collective. Throws Error: mismatch (options that differ), invalid_argument (parameters that were
  /// converted or replaced; NonFinite::stop), and what a collective fails with. After a failure in the middle
  /// no step and no save() is possible: parts of the model may be of the step before.
  torch::Tensor step(torch::optim::Optimizer::LossClosure closure = nullptr) override {
    torch::Tensor loss;
    if (closure) {
      const torch::AutoGradMode with_gradients(true);
      loss = closure();
    }
    take();
    return loss;
  }

  void save(torch::serialize::OutputArchive& archive) const override {
    require_savable();
    Optimizer::save(archive);
  }
  /// All ranks load alike. Throws as FusedOptimizer's does; nothing has changed then.
  void load(torch::serialize::InputArchive& archive) override {
    load_state([&] { Optimizer::load(archive); });
  }
};

}  // namespace lockstep
