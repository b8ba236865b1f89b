// Twice the batch is worth it as long as gradients are mostly noise, and wasted when they are mostly alike.
// The gradient noise scale says which: about as large a batch as it pays, a larger one takes hardly fewer
// steps. Data-parallel ranks have what it takes to measure it: the gradient of each rank's batch, and that of
// all of them.
//
//   E |g of a batch of B samples|^2 = |G|^2 + S / B      G: the true gradient; S: trace of the covariance of
//                                                        single samples' gradients
//   with two batch sizes, two equations:   S and |G|^2,  and the noise scale is S / |G|^2
//
// Source: McCandlish, Kaplan, Amodei: An Empirical Model of Large-Batch Training (2018), appendix A.1.
#pragma once

#include <torch/torch.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "lockstep/train/data_parallel/communication_hook.h"

namespace lockstep {

/// The estimate from squared lengths of gradients. Single steps say next to nothing: both S and |G|^2 are
/// averaged over steps, and only then divided.
class GradientNoise {
 public:
  /// A step long ago weighs exponentially less: the estimate is about the last 1 / (1 - decay) steps. Throws
  /// Error{invalid_argument} unless 0 <= decay < 1.
  explicit GradientNoise(double decay = 0.99);

  /// One step: the (mean) squared length of gradients of `small_batch` samples, and that of a gradient of
  /// `big_batch`. Throws Error{invalid_argument} unless 0 < small_batch < big_batch. Lengths that are not
  /// finite are left out.
  void add(double small_batch, double small_squared, double big_batch, double big_squared);

  /// S / |G|^2, in samples. Nothing before the first step, and while noise hides the gradient altogether
  /// (the estimate of |G|^2 is not positive: take more steps, or a decay nearer to 1).
  std::optional<double> scale() const;
  /// The two estimates themselves; 0 before the first step.
  double noise() const { return weight_ > 0 ? noise_ / weight_ : 0; }
  double signal() const { return weight_ > 0 ? signal_ / weight_ : 0; }

 private:
  double decay_;
  double noise_ = 0, signal_ = 0, weight_ = 0;  // moving sums of S and |G|^2, and of their weights
};

/// Averages as AllReduceHook does, and looks at the gradients before and after. For DataParallelOptions::
/// communication_hook; all ranks have the same estimate. In a group of one nothing is averaged, so there is
/// none.
///
///   const auto noise = std::make_shared<NoiseScaleHook>(32);
///   DistributedDataParallel ddp(net, world, {.communication_hook = noise});
///   ... train ...;  noise->estimate().scale()
///
/// The loss is a mean over the samples, and each rank's batch has as many; a last batch that is shorter is
/// taken for a full one. Steps that some ranks have no inputs for do not count, nor do gradients that add up
/// over several backwards without one that is averaged.
/// Cost: two more passes over the gradients and one all_reduce of 8 bytes in each step; and with any hook
/// gradients are copied into buckets, where without one they would be averaged from where they are.
class NoiseScaleHook final : public CommunicationHook {
 public:
  /// Throws Error{invalid_argument} for 0 samples, and as GradientNoise does.
  explicit NoiseScaleHook(std::uint64_t samples_per_rank, double decay = 0.99);

  std::string name() const override { return "all_reduce with noise scale"; }
  Work begin(const GradientBucket& bucket) override;
  std::optional<Work> proceed(const GradientBucket& bucket) override;
  void forget() override { start_step(); }

  const GradientNoise& estimate() const { return estimate_; }

 private:
  void start_step();

  double samples_per_rank_;
  GradientNoise estimate_;
  std::size_t begun_ = 0, averaged_ = 0;  // buckets of this step
  std::array<double, 1> own_squared_{};   // of this rank's gradients; then the ranks' mean of it
  double average_squared_ = 0;
  bool is_exchanging_ = false;
};

}  // namespace lockstep
