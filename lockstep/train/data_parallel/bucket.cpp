#include "lockstep/train/data_parallel/bucket.h"

#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <utility>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

constexpr std::size_t alignment_bytes = 64;

/// Puts the parameter at the end of the bucket.
void append(BucketPlan& bucket, std::size_t parameter, std::size_t elements) {
  const std::size_t unit = alignment_bytes / size_of(bucket.dtype);
  const std::size_t begin = (bucket.elements + unit - 1) / unit * unit;
  bucket.slots.push_back({parameter, begin, elements});
  bucket.elements = begin + elements;
}

}  // namespace

std::vector<std::size_t> backward_order(std::size_t parameters) {
  std::vector<std::size_t> order(parameters);
  for (std::size_t i = 0; i < parameters; ++i) order[i] = parameters - 1 - i;
  return order;
}

std::vector<BucketPlan> plan_buckets(std::span<const GradientSize> parameters,
                                     std::span<const std::size_t> order, const BucketLimits& limits) {
  struct Full {
    std::size_t last = 0;  // place of its last parameter in the order: a bucket can go when that is ready
    BucketPlan plan;
  };
  std::vector<Full> full;
  std::map<Dtype, Full> open;
  std::map<Dtype, bool> has_first;
  for (std::size_t place = 0; place < order.size(); ++place) {
    const auto [elements, dtype] = parameters[order[place]];
    Full& bucket = open[dtype];
    bucket.plan.dtype = dtype;
    bucket.last = place;
    append(bucket.plan, order[place], elements);
    const std::size_t cap = has_first[dtype] ? limits.cap_bytes : limits.first_bytes;
    if (bucket.plan.elements * size_of(dtype) < cap) continue;
    has_first[dtype] = true;
    full.push_back(std::move(bucket));
    open.erase(dtype);
  }
  for (auto& [dtype, bucket] : open) full.push_back(std::move(bucket));
  std::ranges::stable_sort(full, std::less<>(), &Full::last);
  std::vector<BucketPlan> plans;
  for (auto& bucket : full) plans.push_back(std::move(bucket.plan));
  return plans;
}

namespace {

ArenaBlock allocate_bucket(const Group& group, std::size_t bytes) try {
  return group.allocate_bytes(bytes);
} catch (const Error& error) {
  throw Error(error.code(), "the gradients' bucket of " + std::to_string(bytes) + " bytes: " + error.what());
}

}  // namespace

Bucket::Bucket(const Group& group, const BucketPlan& plan, bool in_own_pages) : dtype_(plan.dtype) {
  const std::size_t bytes = plan.elements * size_of(plan.dtype);
  const std::size_t border = in_own_pages ? static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)) : 1;
  const std::size_t room = (bytes + border - 1) / border * border + (border - 1);
  block_ = std::make_shared<ArenaBlock>(allocate_bucket(group, std::max(room, alignment_bytes)));
  const auto begin = reinterpret_cast<std::uintptr_t>(block_->bytes().data());
  bytes_ = block_->bytes().subspan((border - begin % border) % border, bytes);
  std::memset(bytes_.data(), 0, bytes);
}

}  // namespace lockstep
