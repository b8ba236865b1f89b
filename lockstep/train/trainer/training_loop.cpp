#include "lockstep/train/trainer/training_loop.h"

#include <string>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/train/replicas/broadcast_tensors.h"
#include "lockstep/train/replicas/model_tensors.h"
#include "lockstep/train/replicas/named_tensor.h"
#include "lockstep/train/replicas/state_storage.h"
#include "lockstep/train/trainer/training_run.h"

namespace lockstep {
namespace {

/// Training or not, until it ends.
class Mode {
 public:
  Mode(const TrainedModel& model, bool on) : model_(model), before_(model.module.is_training()) {
    model_.set_training(on);
  }
  Mode(const Mode&) = delete;
  Mode& operator=(const Mode&) = delete;
  ~Mode() { model_.set_training(before_); }

 private:
  const TrainedModel& model_;
  bool before_;
};

}  // namespace

TrainingLoop::TrainingLoop(const Group& group, TrainedModel model, torch::optim::Optimizer& optimizer,
                           TrainerOptions options)
    : group_(group), model_(std::move(model)), optimizer_(optimizer), options_(std::move(options)) {
  if (group.size() > 1 && !model_.averages_gradients && !storage_of(optimizer).is_sharded()) {
    throw_invalid_argument(
        "the ranks' gradients would not be averaged: give the Trainer a DistributedDataParallel, or a "
        "ShardedOptimizer");
  }
  if (!options_.loss) {
    options_.loss = [](const torch::Tensor& output, const torch::Tensor& target) {
      return torch::nn::functional::cross_entropy(output, target);
    };
  }
}

std::vector<EpochResult> TrainingLoop::fit(const BatchSource& training, const BatchSource* evaluation) {
  TrainingRun run(group_, model_.module, optimizer_, options_, evaluation != nullptr);
  const torch::Device where = device();
  model_.set_training(true);
  while (run.goes_on()) {
    if (training.set_epoch) training.set_epoch(run.epoch());
    run.begin_epoch(training.steps_per_epoch ? training.steps_per_epoch() : 0);
    training.for_each_batch([&](const torch::Tensor& data, const torch::Tensor& target) {
      const std::size_t samples = run.begin_step(data);
      optimizer_.zero_grad();
      const torch::Tensor output = model_.forward(data.to(where));
      const torch::Tensor loss = options_.loss(output, target.to(where));
      const double value = run.check_loss(loss);
      loss.backward();
      optimizer_.step();
      run.end_step(value, samples);
    });
    run.end_training();
    run.end_epoch(evaluation != nullptr ? evaluate(*evaluation) : Evaluation{});
  }
  return run.history();
}

Evaluation TrainingLoop::evaluate(const BatchSource& source) {
  const torch::NoGradGuard no_grad;
  broadcast_tensors(group_, buffers_of(model_.module));
  const Mode mode(model_, false);
  const torch::Device where = device();
  BatchMeter meter;
  const std::string rank = "rank " + std::to_string(group_.world_rank(group_.rank())) + ", evaluation";
  source.for_each_batch([&](const torch::Tensor& data, const torch::Tensor& batch_target) {
    const std::size_t samples = samples_of(data, rank);
    const torch::Tensor target = batch_target.to(where);
    const torch::Tensor output = model_.forward(data.to(where));
    meter.add_loss(options_.loss(output, target).item<double>(), samples);
    meter.add_accuracy(output, target);
  });
  return meter.over_ranks(group_);
}

torch::Device TrainingLoop::device() const {
  const auto parameters = model_.module.parameters();
  return parameters.empty() ? torch::Device(torch::kCPU) : parameters.front().device();
}

}  // namespace lockstep
