// An optimizer that ranks step together has to be the one that steps. Another one over the same parameters,
// left from before, trains each rank alone, and nobody would notice: all losses fall.
#pragma once

#include <torch/torch.h>

#include <cstddef>
#include <span>
#include <vector>

#include "lockstep/train/replicas.h"

namespace lockstep {

/// Watches the first bytes of the smallest of the parameters: in backward it throws Error{invalid_argument}
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
  std::vector<std::byte> seen_;  // at the last backward since a step; empty: none
  int changes_ = 0;              // that came after a backward, without a step
};

}  // namespace lockstep
