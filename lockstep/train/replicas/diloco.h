// Ranks that talk seldom, because the link between them is slow: each trains on its own for many steps, then what they have
// learned is averaged, and an optimizer of its own decides how far the common model moves. Local SGD is the simplest of them.
// Source: Douillard et al. 2023, "DiLoCo: Distributed Low-Communication Training of Language Models"; Stich 2019, "Local SGD
// Converges Fast and Communicates Little".
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <vector>

#include "lockstep/group/group.h"
#include "lockstep/train/replicas/named_tensor.h"
#include "lockstep/train/replicas/non_finite.h"
#include "lockstep/train/tensor/module_of.h"

namespace lockstep {

/// Alike on all ranks.
struct DiLoCoOptions {
  /// Steps of the inner optimizer between two averages. 1 with an outer SGD of learning rate 1 and no momentum, and SGD
  /// inside: data-parallel training.
  std::int64_t every = 100;
  /// Of the averaged difference. stop: every rank throws, naming the ranks whose model is infinite or no number, and the common
  /// model has not moved. skip: every rank goes back to the common model; buffers whose
  /// average is none go back, too. The inner optimizer's state is the program's: one whose moments are no numbers spoils the next rounds, too.
  NonFinite non_finite = NonFinite::ignore;
};

/// The common model of ranks that train on their own.
///
///   lockstep::DiLoCo outer(*net, world, torch::optim::SGDOptions(0.7).momentum(0.9).nesterov(true), {.every = 100});
///   for (...) { adamw.zero_grad(); loss_of(batch).backward(); adamw.step(); outer.step(); }
///
/// The inner optimizer is the program's, with a state of its own on each rank, and the model is not wrapped: gradients are a
/// rank's own. Between two averages models differ; evaluate and save after one (step() says true), or on one rank alone.
/// Buffers of floating point (batch norm's statistics) are averaged, others are rank 0's.
///
/// Memory: twice the model, three times with momentum. Cost: one all_reduce of the parameters in `every` steps: 1 / every of
/// the bytes of data-parallel training. Thread safety: none.
class DiLoCo {
 public:
  /// Collective: rank 0's parameters and buffers are everybody's afterwards. `outer`: of the optimizer that takes the averaged
  /// difference (common model minus local) for its gradient. Throws Error: invalid_argument (every below 1); mismatch (models
  /// or options that differ); unsupported (parameters of a type without an average).
  template <class Model>
  DiLoCo(const Model& model, const Group& group, const torch::optim::SGDOptions& outer,
         const DiLoCoOptions& options = {})
      : DiLoCo(module_of(model), group, outer, options) {}
  DiLoCo(const torch::nn::Module& module, const Group& group, const torch::optim::SGDOptions& outer,
         const DiLoCoOptions& options = {});

  /// After each step of the inner optimizer; in each `every`th call collective. Returns whether that was one: the model is the
  /// common one now, the same bits on all ranks. Throws Error: invalid_argument (NonFinite::stop, a parameter that was frozen when this
  /// was made).
  bool step();

  /// The common model's parameters, in the module's order, and the optimizer that moves them: for checkpoints.
  const std::vector<torch::Tensor>& parameters() const { return common_; }
  torch::optim::SGD& optimizer() { return optimizer_; }

 private:
  void average();
  void keep_finite_buffers();

  Group group_;
  DiLoCoOptions options_;
  std::vector<NamedTensor> local_, frozen_, buffers_;
  std::vector<torch::Tensor> common_, kept_buffers_;
  torch::optim::SGD optimizer_;
  std::int64_t steps_ = 0;
};

}  // namespace lockstep
