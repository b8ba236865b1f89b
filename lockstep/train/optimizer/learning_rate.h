// A learning rate that follows the training: larger for more ranks, small at first, smaller in the end.
// libtorch's schedulers (torch::optim::StepLR) multiply what they find in the optimizer by a factor and count
// their own calls: a run that resumes cannot tell them where it is, two of them on one optimizer disturb each
// other, and there is none that warms up and no cosine. Here a schedule is a value: a function from the step
// to the rate, so that all there is to remember is the step.
//
//   auto rate = LearningRate::step_decay(0.1, 30 * steps_per_epoch).scaled(world.size(), 5 *
//   steps_per_epoch); for (...) { rate.apply(sgd, step++); ... sgd.step(); }
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <functional>
#include <utility>

namespace lockstep {

/// Steps are counted from 0, as all ranks take them: an epoch is as many as its loader has batches. What is
/// made throws Error{invalid_argument} for rates and factors that are negative or not finite, and for lengths
/// of 0. Thread safety: as a value; at() and apply() change nothing in it.
class LearningRate {
 public:
  /// The same rate always.
  LearningRate(double rate);  // NOLINT(google-explicit-constructor): a number is a schedule

  /// rate, after `every` steps rate * factor, after 2 * every rate * factor^2, ...
  static LearningRate step_decay(double rate, std::uint64_t every, double factor = 0.1);
  /// From `rate` down to `lowest` within `steps` along half a cosine, and `lowest` from then on:
  /// lowest + (rate - lowest) (1 + cos(pi step / steps)) / 2. Source: Loshchilov & Hutter 2017, without
  /// restarts.
  static LearningRate cosine(double rate, std::uint64_t steps, double lowest = 0);

  /// This schedule, in the first `warm_up` steps times a factor that grows linearly from 1, and from then on
  /// times `ranks`: a batch of so many times the samples takes steps so many times as long. A `warm_up` of 0
  /// is none. Source: Goyal et al. 2017, who warm up over 5 epochs.
  LearningRate scaled(int ranks, std::uint64_t warm_up) const;
  /// This schedule for `steps` steps, then `next` from its own beginning.
  LearningRate then(std::uint64_t steps, const LearningRate& next) const;

  double at(std::uint64_t step) const { return rate_(step); }

  /// Before the optimizer's step number `step`: every group of its parameters gets the rate. Fits any
  /// optimizer whose options have a learning rate, also FusedSGD and its like, and on all ranks alike a
  /// ShardedOptimizer. For groups of different rates keep a schedule for each:
  /// `group.options().set_lr(schedule.at(step))`.
  void apply(torch::optim::Optimizer& optimizer, std::uint64_t step) const;

 private:
  explicit LearningRate(std::function<double(std::uint64_t)> rate) : rate_(std::move(rate)) {}

  std::function<double(std::uint64_t)> rate_;
};

}  // namespace lockstep
