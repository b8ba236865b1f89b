#include "lockstep/train/data_parallel/shared_exchange.h"

#include <algorithm>

#include "lockstep/train/tensor/tensor_bytes.h"

namespace lockstep {
namespace {

std::vector<BucketPlan> plans_of(const GradientBuckets& buckets) {
  std::vector<BucketPlan> plans;
  for (const auto& filled : buckets.all()) plans.push_back(filled.plan);
  return plans;
}

}  // namespace

SharedExchange::SharedExchange(const Group& group, GradientBuckets& buckets)
    : BucketExchange(group), buckets_(buckets), average_(group, plans_of(buckets)) {
  for (const auto& filled : buckets.all()) lent_.emplace_back(filled.plan.slots.size());
}

void SharedExchange::begin(int contributors) {
  start_anew();
  contributors_ = contributors;
  for (auto& places : lent_) std::ranges::fill(places, 0);
}

bool SharedExchange::can_lend(const torch::Tensor& gradient) const {
  return average_.place_of(elements_of(gradient)).has_value();
}

bool SharedExchange::lend(const GradientBuckets::Place& place, const torch::Tensor& gradient) {
  const auto there = average_.place_of(elements_of(gradient));
  if (there) lent_[place.bucket][place.slot] = to_word(*there);
  return there.has_value();
}

Work SharedExchange::start(std::size_t bucket) {
  std::vector<std::uint64_t> places = lent_[bucket];
  const auto& filled = buckets_.all()[bucket];
  for (std::size_t slot = 0; slot < places.size(); ++slot) {
    if (places[slot] != 0) continue;
    const auto& in_plan = filled.plan.slots[slot];
    const std::size_t bytes = buckets_.tensor_of(in_plan.parameter).nbytes();
    places[slot] = to_word(average_.place_of({filled.bucket->slot_data(in_plan), bytes}).value());
  }
  return average_.tell(bucket, places);
}

}  // namespace lockstep
