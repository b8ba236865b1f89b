#include "lockstep/train/data_parallel/hooks/predivided_hook.h"

#include <cmath>
#include <utility>

#include "lockstep/base/error.h"

namespace lockstep {

PredividedHook::PredividedHook(std::shared_ptr<CommunicationHook> hook, double factor)
    : hook_(std::move(hook)), factor_(factor) {
  if (!std::isfinite(factor) || factor <= 0)
    throw_invalid_argument("the predivide factor is " + std::to_string(factor) + "; it has to be above 0");
}

std::string PredividedHook::name() const {
  return hook_->name().append(", divided by ").append(std::to_string(factor_)).append(" before");
}

Work PredividedHook::begin(const GradientBucket& bucket) {
  bucket.flat.div_(factor_);
  return hook_->begin(bucket);
}

std::optional<Work> PredividedHook::proceed(const GradientBucket& bucket) {
  auto next = hook_->proceed(bucket);
  if (!next) bucket.flat.mul_(factor_);
  return next;
}

}  // namespace lockstep
