// Data-parallel training where the program takes gradients itself instead of having them in grad(): as
// TensorFlow's tape, and Horovod's around it.
//
//   DistributedGradientTape tape(world);
//   auto gradients = tape.gradient(loss, net->parameters());     // everybody's average
//   apply_gradients(sgd, net->parameters(), gradients);
#pragma once

#include <torch/torch.h>

#include <vector>

#include "lockstep/group/group.h"
#include "lockstep/train/gradient_op.h"

namespace lockstep {

/// Alike on all ranks.
struct DistributedGradientTapeOptions {
  GradientOp op = GradientOp::average;
  Compression compression = Compression::none;
};

class DistributedGradientTape {
 public:
  explicit DistributedGradientTape(const Group& group, const DistributedGradientTapeOptions& options = {});

  /// Collective. The gradients of `loss` with respect to `sources`, of all ranks together: the same on all of
  /// them. One that this rank's loss does not depend on counts as zero. grad() of the sources is left alone.
  /// Nothing is sent while backward runs; small gradients travel together. Throws Error: invalid_argument if
  /// no source is given; mismatch if ranks' sources differ in number or size; unsupported (types, devices,
  /// sparse gradients); what a collective fails with.
  std::vector<torch::Tensor> gradient(const torch::Tensor& loss,
                                      const std::vector<torch::Tensor>& sources) const;

 private:
  Group group_;
  DistributedGradientTapeOptions options_;
};

/// One step of the optimizer with these gradients of its parameters, which are grad() afterwards.
void apply_gradients(torch::optim::Optimizer& optimizer, const std::vector<torch::Tensor>& parameters,
                     const std::vector<torch::Tensor>& gradients);

}  // namespace lockstep
