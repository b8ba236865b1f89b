// The optimizer that steps has to be the right one, and nobody would notice another. One over the parameters
// of a ShardedOptimizer, left from before, trains each rank alone: all losses fall. One over other tensors
// than those that a model has trains nothing.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <span>

#include "lockstep/train/replicas/named_tensor.h"

namespace lockstep {

/// Watches the first elements of the smallest of the parameters: in backward it throws Error{invalid_argument}
/// if they changed after two backwards one after the other, and no step was noted meanwhile. Once alone may
/// be a checkpoint that was loaded.
class StepWatch {
 public:
  explicit StepWatch(std::span<const NamedTensor> parameters);
  StepWatch(const StepWatch&) = delete;
  StepWatch& operator=(const StepWatch&) = delete;
  ~StepWatch();

  /// The right optimizer takes a step.
  void note_step();

 private:
  void look();

  torch::Tensor watched_;
  unsigned hook_ = 0;
  torch::Tensor seen_;  // at a backward since the last step; undefined: none
  int changes_ = 0;     // that came after a backward, without a step
};

/// Of a wrapper whose parameters a plain optimizer steps: says, as a warning, that none does. An
/// optimizer that was built over other tensors, those of a copy or of a model that was replaced, trains them,
/// and the losses stay what they are.
class StillParameters {
 public:
  /// Before each forward whose backward is averaged.
  void look(std::span<const NamedTensor> parameters);

  /// Enough for any accumulation of gradients over several backwards.
  static constexpr int most_forwards = 100;

 private:
  std::uint64_t versions_ = 0;  // libtorch counts changes of a tensor
  int forwards_ = 0;            // without one
  torch::Tensor seen_;          // the smallest parameter at the first of them
};

}  // namespace lockstep
