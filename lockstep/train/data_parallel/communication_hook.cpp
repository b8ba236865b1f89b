#include "lockstep/train/data_parallel/communication_hook.h"

#include "lockstep/base/error.h"
#include "lockstep/train/tensor/tensor_bytes.h"
#include "lockstep/train/tensor/tensor_collectives.h"

namespace lockstep {

HookClaim::HookClaim(std::shared_ptr<CommunicationHook> hook) : hook_(std::move(hook)) {
  if (!hook_ || !hook_->is_claimed_.exchange(true)) return;
  throw_invalid_argument("the communication hook " + hook_->name() +
                         " serves another DistributedDataParallel; make one for each");
}

HookClaim::~HookClaim() {
  if (hook_) hook_->is_claimed_ = false;
}

Work GradientBucket::average(const torch::Tensor& other) const {
  const bool is_whole = contributors == group.size();
  if (!is_whole) other.div_(contributors);
  return all_reduce(group, other, is_whole ? ReduceOp::average : ReduceOp::sum);
}

torch::Tensor GradientBucket::scratch(torch::IntArrayRef shape, torch::ScalarType type) const {
  return tensor_for_calls(group, flat.device(), shape, type);
}

Work AllReduceHook::begin(const GradientBucket& bucket) { return bucket.average(bucket.flat); }

HalfHook::HalfHook(torch::ScalarType type) : type_(type) {
  if (type != torch::kHalf && type != torch::kBFloat16)
    throw_invalid_argument("a HalfHook's type is torch::kHalf or torch::kBFloat16, not " + type_name(type));
}

std::string HalfHook::name() const { return type_ == torch::kHalf ? "fp16" : "bf16"; }

Work HalfHook::begin(const GradientBucket& bucket) {
  if (bucket.flat.element_size() <= 2) return bucket.average(bucket.flat);
  torch::Tensor& halves = halves_[bucket.number];
  if (!halves.defined()) halves = bucket.scratch(bucket.flat.sizes(), type_);
  halves.copy_(bucket.flat);
  return bucket.average(halves);
}

std::optional<Work> HalfHook::proceed(const GradientBucket& bucket) {
  if (bucket.flat.element_size() > 2) bucket.flat.copy_(halves_.at(bucket.number));
  return std::nullopt;
}

}  // namespace lockstep
