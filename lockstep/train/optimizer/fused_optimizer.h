// libtorch's SGD, Adam and AdamW in one pass over memory for each parameter, instead of one for each
// operation of their formulas: several times as fast. They are libtorch's own otherwise: options, groups of
// parameters, schedulers, saving and loading, also into each other.
#pragma once

#include <torch/torch.h>

#include <concepts>

#include "lockstep/train/optimizer/fitting_state.h"
#include "lockstep/train/optimizer/parameter_state.h"

namespace lockstep {

template <class Optimizer>
concept Fusible = std::same_as<Optimizer, torch::optim::SGD> || std::same_as<Optimizer, torch::optim::Adam> ||
    std::same_as<Optimizer, torch::optim::AdamW>;

/// What FusedOptimizer does.
void fused_step(ParameterGroups& groups, ParameterStates& states);

/// Of parameters of type f32 or f64; gradients may be sparse. On a GPU all that take the same step are one kernel
/// for each 64 of them; where Lockstep was built without CUDA's nvcc, libtorch's operations, which take as long as libtorch's optimizers. A parameter without a gradient is left alone. step() throws Error{unsupported} for other types, and for amsgrad.
///
/// Results are those of libtorch's optimizers but for rounding: the same operations in the same order, of
/// which libtorch fuses some.
template <Fusible Optimizer>
class FusedOptimizer : public Optimizer {
 public:
  using Optimizer::Optimizer;
  torch::Tensor step(torch::optim::Optimizer::LossClosure closure = nullptr) override {
    torch::Tensor loss;
    if (closure) {
      const torch::AutoGradMode with_gradients(true);
      loss = closure();
    }
    fused_step(this->param_groups(), this->state());
    return loss;
  }

  /// Throws Error: invalid_argument for state of another model; unsupported (amsgrad); and c10::Error, as
  /// libtorch does, for an archive of another kind of optimizer, though Adam's and AdamW's are alike. Nothing
  /// has changed then.
  void load(torch::serialize::InputArchive& archive) override {
    load_fitting(this->param_groups(), this->state(), [&] { Optimizer::load(archive); });
  }
};

using FusedSGD = FusedOptimizer<torch::optim::SGD>;
using FusedAdam = FusedOptimizer<torch::optim::Adam>;
using FusedAdamW = FusedOptimizer<torch::optim::AdamW>;

}  // namespace lockstep
