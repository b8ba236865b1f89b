// A training that goes on when ranks die, and with them when they are back, as if nothing had been: no step is lost, none is
// taken twice, and the model has the same bits as one that was trained undisturbed, on any number of ranks.
//
//   batch of step 7     [ part 0 | part 1 | part 2 | part 3 | part 4 | part 5 ]       always the same samples and parts
//   3 ranks               rank 0            rank 1            rank 2
//   rank 1 is killed      rank 0                     rank 2                           step 7 again, in what is left
//   rank 1 is back        rank 0            rank 2            rank 1                  with rank 0's state
//
// Source: Horovod's and torchelastic's elastic training, which go back to a copy of the state and then train on other samples;
// the sum in a fixed order is reproducible_all_reduce().
#pragma once

#include <torch/torch.h>

#include <chrono>
#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/group/group.h"
#include "lockstep/group/init.h"
#include "lockstep/train/elastic/part_sampler.h"
#include "lockstep/train/replicas/named_tensor.h"
#include "lockstep/train/replicas/non_finite.h"
#include "lockstep/train/tensor/module_of.h"

namespace lockstep {

class PartGradients;
class SharedHeap;
class SpreadState;

/// A value of the program that ranks that come later get, besides model, optimizer and the number of steps.
struct ElasticValue {
  std::string name;
  std::function<c10::IValue()> get;
  std::function<void(const c10::IValue&)> set;

  /// Of an integer, a number, a truth value, a string or a tensor, which outlives its Elastic.
  template <class T>
  ElasticValue(std::string value_name, T& value)
      : name(std::move(value_name)),
        get([&value] { return to_ivalue(value); }),
        set([&value](const c10::IValue& from) { value = from_ivalue<T>(from); }) {}
  ElasticValue(std::string value_name, std::function<c10::IValue()> getter,
               std::function<void(const c10::IValue&)> setter)
      : name(std::move(value_name)), get(std::move(getter)), set(std::move(setter)) {}

 private:
  template <class T>
  static c10::IValue to_ivalue(const T& value) {
    if constexpr (std::integral<T> && !std::same_as<T, bool>) {
      return static_cast<std::int64_t>(value);
    } else if constexpr (std::floating_point<T>) {
      return static_cast<double>(value);
    } else {
      return value;
    }
  }
  template <class T>
  static T from_ivalue(const c10::IValue& value) {
    if constexpr (std::integral<T> && !std::same_as<T, bool>) {
      return static_cast<T>(value.toInt());
    } else if constexpr (std::floating_point<T>) {
      return static_cast<T>(value.toDouble());
    } else {
      return value.to<T>();
    }
  }
};

/// Alike on all ranks, but for `values`' places and `init`.
struct ElasticOptions {
  /// Of each step's batch, dealt to the ranks that live. As many as the most ranks, or a multiple of it, so that all have as many.
  int parts = 1;
  /// Fewer ranks do not train: they wait for others so long, and then all throw.
  int least = 1;
  std::chrono::nanoseconds wait = std::chrono::minutes(5);
  /// Steps that were taken before this job: of the checkpoint that the program has loaded into model and optimizer.
  std::uint64_t steps = 0;
  /// Of the random numbers that parts draw.
  std::uint64_t seed = 0;
  /// Of a part's gradients: stop names the part, the parameter and the rank, to all ranks, and the step is not taken; skip goes
  /// on with the next step. Costs one more look at each gradient.
  NonFinite non_finite = NonFinite::ignore;
  std::vector<ElasticValue> values = {};
  /// Each parameter's optimizer state is on two ranks only, which step it, and give its values to the others: of N ranks each has
  /// 2/N of the state, and does as much of the optimizer's work. Costs a broadcast of the model in each step. Where both die together
  /// the others throw Error{corrupt_data}: begin anew from a checkpoint.
  bool spread_state = false;
  /// After each so many steps rank 0 of world() alone calls `save`, when its optimizer has all state (save_checkpoint() is collective: give it a Group()); where a rank dies just then, it is left
  /// out that time. What it throws is thrown by step() there, as of a part. 0: never.
  std::uint64_t save_every = 0;
  std::function<void()> save = {};
  /// See DataParallelOptions.
  bool shared_heap = true;
  InitOptions init = {};
};

/// What has changed, once a new world trains.
struct ElasticChange {
  std::uint64_t steps = 0;      ///< that were taken before
  int size = 0;                 ///< ranks that live
  std::vector<int> came, went;  ///< as the launcher calls them
};

/// Takes the place of init(), DistributedDataParallel and the sampler; start the program with `lockstep run --min-np N
/// --max-restarts M`, or --restart, --tolerate. Elsewhere it trains in the same way, and a rank's death is the job's.
///
///   lockstep::Elastic job(*net, sgd, {.parts = 12});
///   lockstep::PartSampler sampler(dataset.size(), 96);
///   while (job.steps() < 1000)
///     job.step([&](const lockstep::ElasticPart& part) {
///       const auto batch = batch_of(dataset, sampler.indices(part));
///       auto loss = torch::mse_loss(net->forward(batch.data), batch.target);
///       loss.backward();
///       return loss;
///     });
///
/// - Gradients are the average over the parts, added in an order that does not depend on the ranks. Random numbers (dropout) come
///   from the step's and the part's numbers. So all ranks have the same bits, those of one rank alone, if a part's gradient has
///   them on every rank: the same machine, threads and library. Buffers (batch norm's statistics) are each rank's own; newcomers
///   get those of the one that has been there longest.
/// - All ranks agree that a step's gradients are there before any of them updates its model. Where that fails they settle it in
///   the next world: the step is taken by all, or computed again. Nothing is copied for that, nor undone.
/// - A rank whose part throws leaves the job (Group::abort), and the exception is thrown there; others go on.
/// - Learning rates need no rule for other numbers of ranks: the batch stays what it is. on_change() is for who wants one.
///
/// Memory: of gradients log2(parts) + 3 times the model's. Cost of a step beside its parts: reproducible_all_reduce() of the
/// gradients and one all_reduce of 8 bytes, in which ranks also agree whether somebody has come. Thread safety: none.
class Elastic {
 public:
  /// Collective: init(), and rank 0's state everywhere, or that of those who are further. Throws Error: invalid_argument (parts or
  /// least below 1, values of one name, a parameter of a type without an average); mismatch (this rank's program has another
  /// model, optimizer, parts or values than the others'; in a later world they go on without it); timeout (`least`); as init().
  template <class Model>
  Elastic(const Model& model, torch::optim::Optimizer& optimizer, const ElasticOptions& options = {})
      : Elastic(module_of(model), optimizer, options) {}
  Elastic(const torch::nn::Module& module, torch::optim::Optimizer& optimizer,
          const ElasticOptions& options = {});
  Elastic(const Elastic&) = delete;
  Elastic& operator=(const Elastic&) = delete;
  ~Elastic();

  /// Of a part: forward, loss and backward. Returns the loss, the mean over the part's samples. Called again, with other parts
  /// too, where ranks have died.
  using Pass = std::function<torch::Tensor(const ElasticPart&)>;

  /// Collective, over those who live: one step of the optimizer. Returns the mean loss of the batch, on all ranks. Throws what
  /// `pass` throws; Error: invalid_argument (NonFinite::stop, a parameter that was frozen when this was made); aborted (this process is out of the job: it did not answer); what
  /// ends the job.
  double step(const Pass& pass);

  /// That were taken: the same number on all ranks between two steps.
  std::uint64_t steps() const { return steps_; }
  /// Of those who live; the next change makes another one. Only for what all do between the same two steps.
  const Group& world() const;
  /// Called in step(), on every rank, as soon as a new world trains; on a newcomer not for the one it came to. A step that was
  /// settled in that world is one of `steps` already, and of steps() when step() returns.
  void on_change(std::function<void(const ElasticChange&)> call) { on_change_ = std::move(call); }
  /// How often a step was computed again, or what others had taken was taken later, because ranks died.
  std::uint64_t repeated() const { return repeated_; }

 private:
  struct Standing;
  struct Program;

  void require_sense() const;
  void join();
  void leave();
  void await_enough();
  bool meet();
  std::uint64_t taken_steps() const { return steps_ + (taken_ ? 1 : 0); }
  void settle(const std::vector<Standing>& standings);
  void hand_over(const std::vector<Standing>& standings, int first);
  void tell_change();
  void compute(const Pass& pass);
  void agree();
  double update();
  double take();
  void save();

  const torch::nn::Module& module_;
  torch::optim::Optimizer& optimizer_;
  ElasticOptions options_;
  std::vector<NamedTensor> frozen_;
  std::unique_ptr<const Program> program_;
  std::unique_ptr<PartGradients> gradients_;
  std::unique_ptr<SpreadState> spread_;  // where that is asked for
  std::unique_ptr<SharedHeap> heap_;
  std::optional<Group> world_;
  std::vector<int> members_;  // of the last world that trained
  std::function<void(const ElasticChange&)> on_change_;
  std::uint64_t steps_, repeated_ = 0;
  bool is_whole_ = false;             // has the state that all have
  bool is_spoiled_ = false;           // has some of another rank's
  bool is_complete_ = false;          // has the gradients of the step that is not taken yet
  std::optional<double> half_taken_;  // the loss of a step whose values are not everywhere yet
  bool has_changed_ = false;          // who lives, as all ranks of this world know
  // The loss of a step that was taken while ranks met, and that the program does not know of: steps_ counts it when it does.
  std::optional<double> taken_;
};

}  // namespace lockstep
