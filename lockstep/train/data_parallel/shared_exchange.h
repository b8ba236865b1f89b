// On one host, without a hook: gradients are read where they lie, and each rank adds up its share of every
// bucket. See shared_average.h.
#pragma once

#include <cstdint>
#include <vector>

#include "lockstep/train/data_parallel/bucket_exchange.h"
#include "lockstep/train/data_parallel/shared_average.h"

namespace lockstep {

class SharedExchange final : public BucketExchange {
 public:
  /// Collective. REQUIRES: shares_memory(group).
  SharedExchange(const Group& group, const GradientBuckets& buckets);

  void begin(int contributors) override;
  bool can_lend(const torch::Tensor& gradient) const override;
  bool lend(const GradientBuckets::Place& place, const torch::Tensor& gradient) override;
  /// Who shares memory meets the others by the status: it has added up its shares before.
  void complete_before_status() override { complete_all(); }

 private:
  /// Of one bucket, as words: where its gradients' places are; where the others read them in this pass.
  struct Sources {
    std::vector<std::uint64_t> home, now;
  };

  Work start(std::size_t bucket) override { return average_.tell(bucket, sources_[bucket].now); }
  void take(std::size_t bucket) override { average_.add_up(bucket, 1.0 / contributors_); }

  SharedAverage average_;
  std::vector<Sources> sources_;
  int contributors_ = 1;
};

}  // namespace lockstep
