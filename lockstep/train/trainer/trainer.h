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
#include <utility>
#include <vector>

#include "lockstep/group/group.h"
#include "lockstep/train/tensor/module_of.h"
#include "lockstep/train/trainer/history.h"
#include "lockstep/train/trainer/trainer_options.h"
#include "lockstep/train/trainer/training_loop.h"

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
      : loop_(group, model_of(model), optimizer, std::move(options)) {}

  /// Collective. Trains options.epochs epochs, or fewer where it resumes or stops early, and returns what
  /// each was like, those before a resumed one included; the same on all ranks. Before an evaluation the
  /// buffers (batch norm's statistics) become rank 0's, as the checkpoint has them. The model is in training
  /// mode afterwards.
  ///
  /// Throws Error on every rank: mismatch (options or steps_per_epoch() that differ; at the
  /// beginning of an epoch, the optimizer's kind, learning rate and options), system (curve,
  /// TensorBoard, checkpoint), corrupt_data, invalid_argument (no epochs; a checkpoint of something else).
  /// And on one rank, for which the others then wait in vain and name it: invalid_argument (a loss that is
  /// not finite, a batch without samples, no batches; with rank, epoch and step), and what model, loss and
  /// loader throw.
  template <class TrainLoader, class EvalLoader>
  std::vector<EpochResult> fit(TrainLoader&& training, EvalLoader&& evaluation) {
    const BatchSource evaluated = source_of(evaluation);
    return loop_.fit(source_of(training), &evaluated);
  }
  /// The same without evaluations.
  template <class TrainLoader>
  std::vector<EpochResult> fit(TrainLoader&& training) {
    return loop_.fit(source_of(training), nullptr);
  }

  /// Collective. Loss and accuracy over all ranks' batches, in eval mode and without gradients; the mode is
  /// what it was afterwards. Throws as fit() does.
  template <class EvalLoader>
  Evaluation evaluate(EvalLoader&& loader) {
    return loop_.evaluate(source_of(loader));
  }

 private:
  static constexpr bool is_data_parallel = requires(Model & model) { *model.module(); };

  static TrainedModel model_of(Model& model) {
    return {.module = module_of(model),
            .forward = [&model](const torch::Tensor& data) { return forward(model, data); },
            .set_training = [&model](bool on) { set_training(model, on); },
            .averages_gradients = is_data_parallel};
  }

  template <class Loader>
  static BatchSource source_of(Loader& loader) {
    BatchSource source;
    if constexpr (requires { loader.set_epoch(std::uint64_t{}); })
      source.set_epoch = [&loader](std::uint64_t epoch) { loader.set_epoch(epoch); };
    if constexpr (requires {
                    { loader.steps_per_epoch() } -> std::convertible_to<std::uint64_t>;
                  })
      source.steps_per_epoch = [&loader] { return static_cast<std::uint64_t>(loader.steps_per_epoch()); };
    source.for_each_batch = [&loader](const BatchVisitor& visit) {
      for (auto&& batch : loader) visit(batch.data, batch.target);
    };
    return source;
  }

  static torch::Tensor forward(Model& model, const torch::Tensor& data) {
    if constexpr (is_data_parallel)
      return model(data);
    else if constexpr (std::derived_from<Model, torch::nn::Module>)
      return model.forward(data);
    else
      return model->forward(data);
  }
  static void set_training(Model& model, bool on) {
    if constexpr (requires { model.train(on); })
      model.train(on);
    else
      model->train(on);
  }

  TrainingLoop loop_;
};

}  // namespace lockstep
