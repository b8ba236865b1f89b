// Averages of models are better than the models: over ranks that trained on their own for a while, and over
// the last steps of one training, where the noise of single steps cancels out.
#pragma once

#include <torch/torch.h>

#include <memory>
#include <span>
#include <vector>

#include "lockstep/group/group.h"
#include "lockstep/train/replicas/named_tensor.h"
#include "lockstep/train/tensor/module_of.h"

namespace lockstep {

// What the template below calls, and DiLoCo. Collective: those of floating point become their mean, others are rank 0's.
void average_tensors(const Group& group, std::span<const NamedTensor> tensors);
void average_models(const Group& group, const torch::nn::Module& module);

/// Collective. Parameters and buffers of floating point become their mean over all ranks, the same bits on
/// each; others (batch norm's number of batches) are rank 0's. An optimizer's state stays as it is. Under a
/// ShardedOptimizer ranks of a host have one copy of the parameters: there is nothing to average.
/// Throws Error: mismatch (models that differ, in what), unsupported (types without an average).
/// Cost: one all_reduce for each tensor.
template <class Model>
void average_models(const Group& group, const Model& model) {
  average_models(group, module_of(model));
}

/// The average over the steps of a training, of which a step long ago weighs exponentially less. It begins as
/// the model when it is made; each update() moves it by 1 - decay of the way to the model, and so it is about
/// the last 1 / (1 - decay) steps. Parameters and floating-point buffers; others are the model's. Source:
/// Polyak & Juditsky 1992; exponentially as in Tarvainen & Valpola 2017.
///
///   MovingAverage average(*net, 0.999);
///   for (...) { ... sgd.step(); average.update(); }
///   {
///     const auto swapped = average.swap_in();   // net is the average here
///     evaluate(net);
///   }
///
/// Not collective: replicas that are alike have averages that are alike. Not under a ShardedOptimizer, whose
/// ranks of a host have one copy of the parameters between them. To go on from a checkpoint, save one of the
/// average too (while it is swapped in), load that, make the MovingAverage, and then load the model's.
///
/// Memory: a copy of the model, halves in f32; a second one while it is swapped in. Cost of update(): one
/// pass over both. Thread safety: none.
class MovingAverage {
 public:
  /// Keeps the module's tensors, but not the module. Throws Error{invalid_argument} unless 0 <= decay < 1.
  explicit MovingAverage(const torch::nn::Module& module, double decay = 0.999);
  MovingAverage(const MovingAverage&) = delete;
  MovingAverage& operator=(const MovingAverage&) = delete;
  ~MovingAverage();

  /// After each step of the optimizer. Throws Error{invalid_argument} while it is swapped in.
  void update();
  /// The model is the average until the result is gone, and then what it was. The result may outlive this
  /// object. Throws Error{invalid_argument} while it is swapped in.
  [[nodiscard]] std::shared_ptr<void> swap_in();

 private:
  struct Entry {
    torch::Tensor model;    // as the module has it
    torch::Tensor average;  // f32 for halves
  };
  struct Swap;

  void require_out() const;

  double decay_;
  std::vector<Entry> entries_;
  std::weak_ptr<Swap> swap_;
};

}  // namespace lockstep
