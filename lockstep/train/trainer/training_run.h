// What a training does beside its steps: rates, means over ranks, what is shown and written, when it ends and
// where it goes on. It knows nothing of the types of model and loader: see training_loop.h for the loop around it.
//
//   begin_epoch  { begin_step  check_loss  end_step } ...  end_training   evaluation   end_epoch
#pragma once

#include <torch/torch.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/group/group.h"
#include "lockstep/train/checkpoint/async_checkpoint.h"
#include "lockstep/train/checkpoint/checkpoint.h"
#include "lockstep/train/trainer/early_stop.h"
#include "lockstep/train/trainer/event_file.h"
#include "lockstep/train/trainer/history.h"
#include "lockstep/train/trainer/progress.h"
#include "lockstep/train/trainer/trainer_options.h"

namespace lockstep {

/// Adds up what this rank's batches measure.
class BatchMeter {
 public:
  /// `loss`: the mean over these samples.
  void add_loss(double loss, std::size_t samples);
  /// After add_loss() of the same batch.
  void add_accuracy(const torch::Tensor& output, const torch::Tensor& target);
  std::size_t samples() const { return samples_; }
  /// Collective.
  Evaluation over_ranks(const Group& group) const;

 private:
  double loss_sum_ = 0, right_ = 0;
  std::size_t samples_ = 0;
};

/// Samples of a batch. Throws Error{invalid_argument} naming `where` if it has none.
std::size_t samples_of(const torch::Tensor& data, const std::string& where);

class TrainingRun {
 public:
  /// Collective. Loads the checkpoint to resume from, and makes files. Borrows module and optimizer.
  TrainingRun(const Group& group, const torch::nn::Module& module, torch::optim::Optimizer& optimizer,
              const TrainerOptions& options, bool evaluates);

  /// Whether there is another epoch to train; the same on all ranks.
  bool goes_on() const;
  /// Its number, counted from 0.
  std::uint64_t epoch() const { return epoch_; }
  const std::vector<EpochResult>& history() const { return history_; }

  /// Collective. `steps`: how many the epoch will have, on all ranks; 0: as many as the last one.
  void begin_epoch(std::uint64_t steps);
  /// Returns the batch's samples.
  std::size_t begin_step(const torch::Tensor& data);
  /// Its value. Throws Error{invalid_argument} naming rank, epoch and step unless it is finite.
  double check_loss(const torch::Tensor& loss) const;
  void end_step(double loss, std::size_t samples);
  /// Collective, as what follows.
  void end_training();
  void end_epoch(const Evaluation& evaluation);

 private:
  using Clock = std::chrono::steady_clock;

  void require_same_options(bool evaluates) const;
  void resume();
  void count_steps_anew(std::uint64_t ranks_before);
  CheckpointInfo info() const;
  void save();
  void report();
  std::string where() const;

  Group group_;
  const torch::nn::Module& module_;
  torch::optim::Optimizer& optimizer_;
  TrainerOptions options_;
  std::optional<TrainingProgress> progress_;
  std::optional<EventFile> events_;  // rank 0's
  std::optional<AsyncCheckpoint> async_checkpoint_;
  std::optional<EarlyStop> early_stop_;
  std::vector<EpochResult> history_;
  std::uint64_t epoch_ = 0;
  std::uint64_t step_ = 0;  // steps of all epochs so far
  std::uint64_t steps_of_epoch_ = 0;
  std::uint64_t steps_of_last_epoch_ = 0;
  BatchMeter meter_;
  Clock::time_point epoch_began_;
  // For the counter images/s: since it was set last.
  Clock::time_point step_ended_;
  double untold_seconds_ = 0;
  std::uint64_t untold_samples_ = 0;
  EpochResult result_;
};

}  // namespace lockstep
