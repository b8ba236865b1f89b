// What a Trainer does beside its steps, and what an evaluation finds.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "lockstep/train/optimizer/learning_rate.h"
#include "lockstep/train/trainer/early_stop.h"
#include "lockstep/train/trainer/history.h"
#include "lockstep/train/trainer/progress.h"

namespace lockstep {

/// Alike on all ranks, but for `progress`.
struct TrainerOptions {
  std::uint64_t epochs = 1;
  /// Sets the rate before each step of the optimizer; none: the optimizer's own rate stays.
  std::optional<LearningRate> schedule = std::nullopt;
  /// From the model's output and the targets: a mean over the samples, as a tensor of one element. Null:
  /// cross_entropy, of outputs [N, classes] and targets of class numbers [N].
  std::function<torch::Tensor(const torch::Tensor& output, const torch::Tensor& target)> loss = nullptr;
  /// Called before each epoch with its number, counted from 0: for DistributedSampler::set_epoch().
  std::function<void(std::uint64_t epoch)> before_epoch = nullptr;
  /// Model, optimizer, epoch, step, random state, early stop and history after each epoch: as
  /// save_checkpoint().
  std::filesystem::path checkpoint = {};
  /// Written while the next epoch trains, as AsyncCheckpoint does; fit() returns when the last one is there.
  bool async_checkpoint = false;
  /// Begin with what `checkpoint` holds, if rank 0 finds that file. On another number of ranks steps, and
  /// with them the schedule, are those of as many epochs of these ranks; a batch of each rank is taken to be
  /// as large.
  bool resume = false;
  /// An SVG of losses and accuracy, written anew after each epoch by rank 0. Its folder is not made.
  std::filesystem::path curve = {};
  /// Above the curve.
  std::string title = {};
  /// A folder for a TensorBoard event file of this run, by rank 0; made where it is missing.
  std::filesystem::path tensorboard = {};
  /// By the evaluation's loss, or the training's where nothing is evaluated.
  std::optional<EarlyStopOptions> early_stop = std::nullopt;
  /// What rank 0 shows, on standard output unless it says otherwise; none: nothing.
  std::optional<ProgressOptions> progress = ProgressOptions{};
};

/// Means over the samples of all ranks; NaN if there are none. `accuracy` is also NaN where outputs are not
/// [N, classes] with targets of class numbers [N].
struct Evaluation {
  double loss = EpochResult::unknown;
  double accuracy = EpochResult::unknown;
};

}  // namespace lockstep
