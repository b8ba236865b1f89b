// The loop of every training program is the same: epochs of steps, an evaluation after each, means over all
// ranks, something to look at, a file to go on from. A Trainer is that loop, so that a program is left with
// its model, its data and its optimizer.
//
//   auto world = lockstep::init();
//   ...
//   lockstep::DistributedDataParallel ddp(net, world);
//   torch::optim::SGD sgd(net->parameters(), rate);
//   lockstep::Trainer trainer(world, ddp, sgd, {.epochs = 5, .checkpoint = "model.ckpt", .resume = true});
//   trainer.fit(*train_loader, *test_loader);
#pragma once

#include <torch/torch.h>

#include <concepts>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/group/group.h"
#include "lockstep/train/checkpoint/checkpoint.h"
#include "lockstep/train/replicas/broadcast_tensors.h"
#include "lockstep/train/replicas/named_tensor.h"
#include "lockstep/train/replicas/sharded_state.h"
#include "lockstep/train/trainer/history.h"
#include "lockstep/train/trainer/training_run.h"

namespace lockstep {

/// Model: a DistributedDataParallel; or with a ShardedOptimizer, or alone, a module holder. Its forward takes
/// a batch's data and returns one tensor.
///
/// A loader is anything with begin() and end() that yields batches with `data` and `target`, tensors of which
/// `data` is [N, ...]: what torch::data::make_data_loader points to, a std::vector of torch::data::Example.
/// Where it has them, set_epoch(n) is called before each epoch n, counted from 0, and steps_per_epoch() says
/// how many batches it yields. Batches are moved to the device of the model's first parameter. Each rank's
/// training loader yields as many batches, at least one; where steps_per_epoch() does not say so, other
/// numbers end in an error about what ranks do next (see DistributedDataParallel::join). Evaluations may have
/// any number on any rank: means are weighted by samples. A DistributedSampler repeats some samples where
/// ranks do not divide them; these count twice.
///
/// The optimizer's step needs no closure. What this loop does not do (clipping, several backwards a step,
/// scaled losses) takes a loop of the program's own, with the parts that a Trainer is made of.
///
/// Borrows model and optimizer. Thread safety: none.
template <class Model>
class Trainer {
 public:
  /// Not collective. Throws Error{invalid_argument} where nobody would average the ranks' gradients.
  Trainer(const Group& group, Model& model, torch::optim::Optimizer& optimizer, TrainerOptions options = {})
      : group_(group), model_(model), optimizer_(optimizer), options_(std::move(options)) {
    if (group.size() > 1 && !is_data_parallel && dynamic_cast<const ShardedState*>(&optimizer) == nullptr) {
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

  /// Collective. Trains options.epochs epochs, or fewer where it resumes or stops early, and returns what
  /// each was like, those before a resumed one included; the same on all ranks. Before an evaluation the
  /// buffers (batch norm's statistics) become rank 0's, as the checkpoint has them. The model is in training
  /// mode afterwards.
  ///
  /// Throws Error on every rank: mismatch (options or steps_per_epoch() that differ), system (curve,
  /// TensorBoard, checkpoint), corrupt_data, invalid_argument (no epochs; a checkpoint of something else).
  /// And on one rank, for which the others then wait in vain and name it: invalid_argument (a loss that is
  /// not finite, a batch without samples, no batches; with rank, epoch and step), and what model, loss and
  /// loader throw.
  template <class TrainLoader, class EvalLoader>
  std::vector<EpochResult> fit(TrainLoader&& training, EvalLoader&& evaluation) {
    return run(
        training, [&] { return evaluate(evaluation); }, true);
  }
  /// The same without evaluations.
  template <class TrainLoader>
  std::vector<EpochResult> fit(TrainLoader&& training) {
    return run(
        training, [] { return Evaluation{}; }, false);
  }

  /// Collective. Loss and accuracy over all ranks' batches, in eval mode and without gradients; the mode is
  /// what it was afterwards. Throws as fit() does.
  template <class EvalLoader>
  Evaluation evaluate(EvalLoader&& loader) {
    std::vector<NamedTensor> buffers;
    for (auto& item : tensors_of(module_of(model_))) {
      if (!item.is_parameter) buffers.push_back(std::move(item));
    }
    const torch::NoGradGuard no_grad;
    broadcast_tensors(group_, buffers);
    const Mode mode(model_, false);
    const torch::Device device = device_of_model();
    BatchMeter meter;
    const std::string where =
        std::string("rank ").append(std::to_string(group_.world_rank(group_.rank()))).append(", evaluation");
    for (auto&& batch : loader) {
      const std::size_t samples = samples_of(batch.data, where);
      const torch::Tensor target = batch.target.to(device);
      const torch::Tensor output = forward(batch.data.to(device));
      meter.add_loss(options_.loss(output, target).template item<double>(), samples);
      meter.add_accuracy(output, target);
    }
    return meter.over_ranks(group_);
  }

 private:
  static void set_training(Model& model, bool on) {
    if constexpr (requires { model.train(on); })
      model.train(on);
    else
      model->train(on);
  }
  static bool is_training(const Model& model) { return module_of(model).is_training(); }

  /// Training or not, until it ends.
  class Mode {
   public:
    Mode(Model& model, bool on) : model_(model), before_(is_training(model)) { set_training(model, on); }
    Mode(const Mode&) = delete;
    Mode& operator=(const Mode&) = delete;
    ~Mode() { set_training(model_, before_); }

   private:
    Model& model_;
    bool before_;
  };

  template <class Loader, class Evaluate>
  std::vector<EpochResult> run(Loader& loader, const Evaluate& evaluate, bool evaluates) {
    TrainingRun run(group_, module_of(model_), optimizer_, options_, evaluates);
    const torch::Device device = device_of_model();
    set_training(model_, true);
    while (run.goes_on()) {
      if constexpr (requires { loader.set_epoch(run.epoch()); }) loader.set_epoch(run.epoch());
      run.begin_epoch(steps_of(loader));
      for (auto&& batch : loader) {
        const std::size_t samples = run.begin_step(batch.data);
        optimizer_.zero_grad();
        const torch::Tensor output = forward(batch.data.to(device));
        const torch::Tensor loss = options_.loss(output, batch.target.to(device));
        const double value = run.check_loss(loss);
        loss.backward();
        optimizer_.step();
        run.end_step(value, samples);
      }
      run.end_training();
      run.end_epoch(evaluate());
    }
    return run.history();
  }

  /// 0 where the loader does not say.
  template <class Loader>
  static std::uint64_t steps_of(Loader& loader) {
    if constexpr (requires {
                    { loader.steps_per_epoch() } -> std::convertible_to<std::uint64_t>;
                  })
      return static_cast<std::uint64_t>(loader.steps_per_epoch());
    else
      return 0;
  }

  torch::Device device_of_model() const {
    const auto parameters = module_of(model_).parameters();
    return parameters.empty() ? torch::Device(torch::kCPU) : parameters.front().device();
  }

  torch::Tensor forward(const torch::Tensor& data) {
    if constexpr (is_data_parallel)
      return model_(data);
    else if constexpr (std::derived_from<Model, torch::nn::Module>)
      return model_.forward(data);
    else
      return model_->forward(data);
  }

  static constexpr bool is_data_parallel = requires(Model & model) { *model.module(); };

  Group group_;
  Model& model_;
  torch::optim::Optimizer& optimizer_;
  TrainerOptions options_;
};

}  // namespace lockstep
