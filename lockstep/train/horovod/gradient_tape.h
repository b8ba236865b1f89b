// Data-parallel training where the program takes gradients itself instead of having them in grad(): as
// TensorFlow's tape, and Horovod's around it.
//
//   DistributedGradientTape tape(world);
//   auto gradients = tape.gradient(loss, net->parameters());     // everybody's average
//   apply_gradients(sgd, net->parameters(), gradients);
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "lockstep/group/group.h"
#include "lockstep/train/horovod/gradient_op.h"
#include "lockstep/train/replicas/non_finite.h"

namespace lockstep {

class ParameterDrift;

/// Alike on all ranks.
struct DistributedGradientTapeOptions {
  GradientOp op = GradientOp::average;
  Compression compression = Compression::none;
  /// What becomes of gradients that are infinite or not numbers; see non_finite.h. With skip no rank gets
  /// any: they are undefined, and apply_gradients() changes nothing. Messages have the sources' numbers for
  /// names.
  NonFinite non_finite = NonFinite::ignore;
};

class DistributedGradientTape {
 public:
  explicit DistributedGradientTape(const Group& group, const DistributedGradientTapeOptions& options = {});
  DistributedGradientTape(DistributedGradientTape&&) noexcept;
  DistributedGradientTape& operator=(DistributedGradientTape&&) noexcept;
  ~DistributedGradientTape();

  /// Collective. The gradients of `loss` with respect to `sources`, of all ranks together: the same on all of
  /// them. One that this rank's loss does not depend on counts as zero. grad() of the sources is left alone.
  /// Nothing is sent while backward runs; small gradients travel together, and those on a GPU as one tensor there. Throws Error: invalid_argument if
  /// no source is given, and for NonFinite::stop; mismatch if ranks' sources differ in number or size, or
  /// were equal and no longer are; unsupported (types, devices, sparse gradients); what a collective fails
  /// with.
  ///
  /// Sources that are equal on all ranks are taken for a model's parameters, whose optimizers do the same on
  /// each: in calls 0, 1, 2, 4, 8 and so on, and each 64th, a few of their elements are compared.
  std::vector<torch::Tensor> gradient(const torch::Tensor& loss, const std::vector<torch::Tensor>& sources);

 private:
  std::vector<torch::Tensor> bring_together_if_finite(std::vector<torch::Tensor> gradients);
  void require_possible(const torch::Tensor& gradient, const std::string& what) const;
  void bring_together(std::vector<torch::Tensor>& gradients) const;
  void bring_together_on_devices(std::vector<torch::Tensor>& gradients) const;
  void compare(const std::vector<torch::Tensor>& sources);

  Group group_;
  DistributedGradientTapeOptions options_;
  std::uint64_t taken_ = 0;
  std::uint64_t calls_ = 0;                // with these sources
  std::vector<torch::Tensor> sources_;     // of the last call
  std::unique_ptr<ParameterDrift> drift_;  // null: they were never equal on all ranks
};

/// One step of the optimizer with these gradients of its parameters, which are grad() afterwards.
void apply_gradients(torch::optim::Optimizer& optimizer, const std::vector<torch::Tensor>& parameters,
                     const std::vector<torch::Tensor>& gradients);

}  // namespace lockstep
