#include "lockstep/train/data_parallel/bucket_exchange.h"

#include <utility>

#include "lockstep/group/shared_memory.h"
#include "lockstep/train/data_parallel/hook_exchange.h"
#include "lockstep/train/data_parallel/shared_exchange.h"

namespace lockstep {

void BucketExchange::start_anew() {
  works_.clear();
  completed_ = 0;
}

void BucketExchange::progress() {
  if (completed_ == works_.size()) group_.poll();
  for (; completed_ < works_.size() && works_[completed_].test(); ++completed_) take(completed_);
}

void BucketExchange::complete_all() {
  for (; completed_ < works_.size(); ++completed_) {
    works_[completed_].wait();
    take(completed_);
  }
}

void BucketExchange::abandon() noexcept {
  for (Work& work : works_) work.abandon();
  works_.clear();
}

bool averages_in_place(const Group& group, const std::shared_ptr<CommunicationHook>& hook) {
  return !hook && shares_memory(group);
}

std::unique_ptr<BucketExchange> make_exchange(const Group& group, GradientBuckets& buckets,
                                              std::shared_ptr<CommunicationHook> hook) {
  if (averages_in_place(group, hook) && !buckets.are_on_gpu())
    return std::make_unique<SharedExchange>(group, buckets);
  if (hook) return std::make_unique<HookExchange>(group, buckets, std::move(hook));
  return std::make_unique<HookExchange>(group, buckets, std::make_shared<AllReduceHook>());
}

}  // namespace lockstep
