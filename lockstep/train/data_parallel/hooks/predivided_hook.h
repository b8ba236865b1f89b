// Halves that are added up may grow beyond what a half can hold. Here gradients are divided by a factor
// before they are added, and the sum by the rest of the ranks' number afterwards.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "lockstep/train/data_parallel/communication_hook.h"

namespace lockstep {

/// Another hook between a division and a multiplication by `factor`. Cost: two more passes over the bucket.
class PredividedHook final : public CommunicationHook {
 public:
  /// Throws Error{invalid_argument} unless `factor` is a number above 0.
  PredividedHook(std::shared_ptr<CommunicationHook> hook, double factor);

  std::string name() const override;
  Work begin(const GradientBucket& bucket) override;
  std::optional<Work> proceed(const GradientBucket& bucket) override;
  void forget() override { hook_->forget(); }

 private:
  std::shared_ptr<CommunicationHook> hook_;
  double factor_;
};

}  // namespace lockstep
