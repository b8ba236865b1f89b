// A Trainer's loop, for models and loaders of any type: of both it knows only what it asks of them.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "lockstep/group/group.h"
#include "lockstep/train/trainer/history.h"
#include "lockstep/train/trainer/trainer_options.h"

namespace lockstep {

/// Borrows the model.
struct TrainedModel {
  const torch::nn::Module& module;
  std::function<torch::Tensor(const torch::Tensor& data)> forward;
  std::function<void(bool on)> set_training;
  bool averages_gradients = false;  ///< in backward
};

using BatchVisitor = std::function<void(const torch::Tensor& data, const torch::Tensor& target)>;

/// Borrows the loader.
struct BatchSource {
  std::function<void(std::uint64_t epoch)> set_epoch = nullptr;  ///< null: it has none
  std::function<std::uint64_t()> steps_per_epoch = nullptr;      ///< null: it does not say
  std::function<void(const BatchVisitor&)> for_each_batch;
};

/// See Trainer.
class TrainingLoop {
 public:
  /// Borrows the optimizer.
  TrainingLoop(const Group& group, TrainedModel model, torch::optim::Optimizer& optimizer,
               TrainerOptions options);

  /// `evaluation`: null for none.
  std::vector<EpochResult> fit(const BatchSource& training, const BatchSource* evaluation);
  Evaluation evaluate(const BatchSource& source);

 private:
  torch::Device device() const;

  Group group_;
  TrainedModel model_;
  torch::optim::Optimizer& optimizer_;
  TrainerOptions options_;
};

}  // namespace lockstep
