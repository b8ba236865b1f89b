// On one host, without a hook: gradients are averaged where they lie, and each rank adds up its share of every
// bucket. See shared_average.h.
#pragma once

#include <cstdint>
#include <vector>

#include "lockstep/train/data_parallel/bucket_exchange.h"
#include "lockstep/train/data_parallel/shared_average.h"

namespace lockstep {

class SharedExchange final : public BucketExchange {
 public:
  /// REQUIRES: shares_memory(group).
  SharedExchange(const Group& group, GradientBuckets& buckets);

  void begin(int contributors) override;
  bool can_lend(const torch::Tensor& gradient) const override;
  bool lend(const GradientBuckets::Place& place, const torch::Tensor& gradient) override;
  /// Who shares memory meets the others by the status: it has added up its shares before.
  void complete_before_status() override { complete_all(); }
  bool is_in_place() const override { return true; }

 private:
  Work start(std::size_t bucket) override;
  void take(std::size_t bucket) override { average_.add_up(bucket, 1.0 / contributors_); }

  GradientBuckets& buckets_;
  SharedAverage average_;
  /// Of each bucket, as words: where gradients are averaged in this pass that are not in their places; 0 of others.
  std::vector<std::vector<std::uint64_t>> lent_;
  int contributors_ = 1;
};

}  // namespace lockstep
