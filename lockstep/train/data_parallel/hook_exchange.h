// A communication hook makes the buckets everybody's, each in as many calls as it likes.
#pragma once

#include <memory>
#include <vector>

#include "lockstep/train/data_parallel/bucket_exchange.h"

namespace lockstep {

class HookExchange final : public BucketExchange {
 public:
  HookExchange(const Group& group, GradientBuckets& buckets, std::shared_ptr<CommunicationHook> hook);

  void begin(int contributors) override;
  void complete_after_status() override;
  void forget() override { hook_->forget(); }

 private:
  Work start(std::size_t bucket) override { return hook_->begin(views_[bucket]); }

  std::shared_ptr<CommunicationHook> hook_;
  std::vector<GradientBucket> views_;
};

}  // namespace lockstep
