// What ShardedOptimizer is whichever optimizer of libtorch's it takes the place of.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "lockstep/group/group.h"
#include "lockstep/train/replicas/non_finite.h"
#include "lockstep/train/replicas/sharded_state.h"

namespace lockstep {

class ShardedStep;

struct ShardedOptions {
  /// If the average gradient, as one vector of all parameters, is longer than this, it is shortened to it.
  /// 0: never. One more pass over the gradients, as NonFinite has it.
  double max_gradient_norm = 0;
  NonFinite non_finite = NonFinite::ignore;
  /// See DataParallelOptions. Without, gradients are copied once.
  bool shared_heap = true;
};

class ShardedOptimizerBase : public ShardedState {
 public:
  ShardedOptimizerBase(const ShardedOptimizerBase&) = delete;
  ShardedOptimizerBase& operator=(const ShardedOptimizerBase&) = delete;
  ~ShardedOptimizerBase() override;

  void gather_state() const override;
  // What a sharded checkpoint holds.
  std::vector<ParameterSlice> slices() const override;
  std::vector<SliceState> slice_states() const override;
  void restore_slices(std::span<const SliceState> restored) override;

  /// Steps that NonFinite::skip left out.
  std::uint64_t skipped() const;

 protected:
  /// `optimizer` is the same object, of which this is the other base. Collective; see ShardedOptimizer.
  ShardedOptimizerBase(torch::optim::Optimizer& optimizer, const torch::nn::Module& module,
                       const Group& group, const ShardedOptions& options);

  /// Collective: one step.
  void take();
  /// Throws Error: aborted, if a step was cut off while some rank was changing parameters; invalid_argument, if the state
  /// is spread over ranks.
  void require_savable() const;
  /// Calls `load`, which makes the optimizer one that was saved. Throws as load_fitting() does.
  void load_state(const std::function<void()>& load);

  static std::vector<torch::Tensor> trainable_parameters(const torch::nn::Module& module);

 private:
  torch::optim::Optimizer& optimizer_;
  std::unique_ptr<ShardedStep> step_;
};

}  // namespace lockstep
