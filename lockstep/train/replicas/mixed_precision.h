// Training in halves: forwards that compute in f16 or bf16 where that is safe, and a loss that is scaled so
// that small gradients do not vanish in f16.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <map>
#include <optional>

#include "lockstep/group/group.h"

namespace lockstep {

/// While it lives, this thread's forwards on this kind of device compute in `type` what libtorch has on its list for it
/// (matrix products, convolutions). Gradients and parameters keep their type. Nests.
///
///   const lockstep::Autocast halves(torch::kHalf, true, torch::kCUDA);  // f16 is for GPUs; with it go GradientScalers
class Autocast {
 public:
  explicit Autocast(torch::ScalarType type = torch::kBFloat16, bool enabled = true,
                    torch::DeviceType device = torch::kCPU);
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;
  ~Autocast();

 private:
  torch::DeviceType device_;
  bool was_enabled_;
  torch::ScalarType type_before_;
};

struct GradientScalerOptions {
  double initial_scale = 65536;
  double growth_factor = 2;
  double backoff_factor = 0.5;
  int growth_interval = 2000;  ///< steps without infinite gradients until the scale grows
};

/// As torch.amp.GradScaler:
///
///   scaler.scale(loss).backward();
///   scaler.unscale(optimizer);        // only to look at gradients, or to clip them
///   scaler.step(optimizer);           // left out if a gradient is infinite or not a number
///   scaler.update();                  // once, behind the steps of all optimizers
///
/// Gradients may be on any devices, and stay there: the host waits for one number of each device and type.
/// Also left out is a step without any gradient: DistributedDataParallel with NonFinite::skip leaves none.
///
/// With DistributedDataParallel gradients are the same on all ranks, so all take the same steps. Without it,
/// where each rank has its own (a ShardedOptimizer), pass the group: step() is collective then,
/// and without one throws Error{invalid_argument} where there are several ranks.
class GradientScaler {
 public:
  explicit GradientScaler(const GradientScalerOptions& options = {}, std::optional<Group> group = {});

  torch::Tensor scale(const torch::Tensor& loss) const { return loss * scale_; }
  /// Divides the optimizer's gradients by the scale. Throws Error{invalid_argument} the second time between
  /// two calls of update().
  void unscale(torch::optim::Optimizer& optimizer);
  /// unscale() unless it was called, then the optimizer's step if all its gradients are finite; returns
  /// whether. Throws Error{invalid_argument} the second time between two calls of update().
  bool step(torch::optim::Optimizer& optimizer);
  /// Shrinks the scale where a step was left out since the last call, or lets it grow. Throws
  /// Error{invalid_argument} without any step() or unscale() since then.
  void update();

  double factor() const { return scale_; }
  /// Steps left out so far.
  std::uint64_t skipped() const { return skipped_; }

  void save(torch::serialize::OutputArchive& archive) const;
  void load(torch::serialize::InputArchive& archive);

 private:
  GradientScalerOptions options_;
  std::optional<Group> group_;
  double scale_;
  std::int64_t good_steps_ = 0;  // since the scale changed
  std::uint64_t skipped_ = 0;
  struct Unscaled {
    bool usable = false;  // there are gradients, and all are finite
    bool is_stepped = false;
  };
  std::map<const torch::optim::Optimizer*, Unscaled> unscaled_;  // since update()
};

}  // namespace lockstep
