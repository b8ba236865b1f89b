#include "lockstep/train/data_parallel/shared_exchange.h"

#include "lockstep/train/tensor/tensor_bytes.h"

namespace lockstep {
namespace {

std::vector<Bucket> memory_of(const GradientBuckets& buckets) {
  std::vector<Bucket> memory;
  for (const auto& filled : buckets.all()) memory.push_back(*filled.bucket);
  return memory;
}

}  // namespace

SharedExchange::SharedExchange(const Group& group, const GradientBuckets& buckets)
    : BucketExchange(group), average_(group, memory_of(buckets)) {
  for (const auto& filled : buckets.all()) {
    Sources& sources = sources_.emplace_back();
    for (const auto& slot : filled.plan().slots)
      sources.home.push_back(to_word(average_.place_of({filled.bucket->slot_data(slot), 0}).value()));
  }
}

void SharedExchange::begin(int contributors) {
  start_anew();
  contributors_ = contributors;
  for (Sources& sources : sources_) sources.now = sources.home;
}

bool SharedExchange::can_lend(const torch::Tensor& gradient) const {
  return average_.place_of(elements_of(gradient)).has_value();
}

bool SharedExchange::lend(const GradientBuckets::Place& place, const torch::Tensor& gradient) {
  const auto there = average_.place_of(elements_of(gradient));
  if (there) sources_[place.bucket].now[place.slot] = to_word(*there);
  return there.has_value();
}

}  // namespace lockstep
