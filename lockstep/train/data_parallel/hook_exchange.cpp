#include "lockstep/train/data_parallel/hook_exchange.h"

#include <numeric>
#include <utility>

namespace lockstep {

HookExchange::HookExchange(const Group& group, GradientBuckets& buckets,
                           std::shared_ptr<CommunicationHook> hook)
    : BucketExchange(group), hook_(std::move(hook)) {
  for (const auto& filled : buckets.all()) {
    GradientBucket& view = views_.emplace_back();
    view.group = group;
    view.number = views_.size() - 1;
    view.flat = filled.flat;
    for (const auto& slot : filled.plan.slots) {
      view.gradients.push_back(buckets.tensor_of(slot.parameter));
      view.names.push_back(buckets.parameters()[slot.parameter].name);
    }
  }
}

void HookExchange::begin(int contributors) {
  start_anew();
  for (GradientBucket& view : views_) view.contributors = contributors;
}

void HookExchange::complete_after_status() {
  std::vector<std::size_t> open(views_.size());
  std::iota(open.begin(), open.end(), std::size_t{0});
  const auto is_over = [this](std::size_t bucket) {
    work_of(bucket).wait();
    auto next = hook_->proceed(views_[bucket]);
    if (next) work_of(bucket) = std::move(*next);
    return !next;
  };
  // In turns, the same on all ranks.
  while (!open.empty()) {
    std::vector<std::size_t> still_open;
    for (const std::size_t bucket : open) {
      if (!is_over(bucket)) still_open.push_back(bucket);
    }
    open = std::move(still_open);
  }
}

}  // namespace lockstep
