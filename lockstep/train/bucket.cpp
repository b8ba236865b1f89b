#include "lockstep/train/bucket.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>

namespace lockstep {
namespace {

constexpr std::size_t alignment_bytes = 64;

/// Puts the parameter at the end of the bucket.
void append(BucketPlan& bucket, std::size_t parameter, std::size_t elements) {
  const std::size_t unit = alignment_bytes / size_of(bucket.dtype);
  const std::size_t begin = (bucket.elements + unit - 1) / unit * unit;
  bucket.slots.push_back({parameter, begin});
  bucket.elements = begin + elements;
}

}  // namespace

std::vector<BucketPlan> plan_buckets(std::span<const GradientSize> parameters, const BucketLimits& limits) {
  std::vector<BucketPlan> full;
  std::map<Dtype, BucketPlan> open;
  std::map<Dtype, bool> has_first;
  for (std::size_t i = parameters.size(); i-- > 0;) {
    const auto [elements, dtype] = parameters[i];
    BucketPlan& bucket = open[dtype];
    bucket.dtype = dtype;
    append(bucket, i, elements);
    const std::size_t cap = has_first[dtype] ? limits.cap_bytes : limits.first_bytes;
    if (bucket.elements * size_of(dtype) < cap) continue;
    has_first[dtype] = true;
    full.push_back(std::move(bucket));
    open.erase(dtype);
  }
  for (auto& [dtype, bucket] : open) full.push_back(std::move(bucket));
  // A bucket can go when its last parameter is ready: the one with the smallest number.
  std::ranges::stable_sort(full, std::greater<>(),
                           [](const BucketPlan& b) { return b.slots.back().parameter; });
  for (auto& bucket : full) ++bucket.elements;  // the flag
  return full;
}

Bucket::Bucket(const Group& group, BucketPlan plan)
    : plan_(std::move(plan)),
      block_(std::make_shared<Arena::Block>(group.allocate_bytes(plan_.elements * size_of(plan_.dtype)))),
      bytes_(block_->bytes().first(plan_.elements * size_of(plan_.dtype))) {
  std::memset(bytes_.data(), 0, bytes_.size());
}

void Bucket::set_flag(bool value) {
  const auto write = [this](auto number) { std::memcpy(element(plan_.flag()), &number, sizeof number); };
  const float number = value ? 1 : 0;
  switch (plan_.dtype) {
    case Dtype::f64: write(double{number}); break;
    case Dtype::f32: write(number); break;
    case Dtype::f16: write(to_float16(number)); break;
    case Dtype::bf16: write(to_bfloat16(number)); break;
    default: break;  // no gradient is of another type
  }
}

bool Bucket::flag_is_set() const {
  const std::byte* const flag = element(plan_.flag());
  return std::any_of(flag, flag + size_of(plan_.dtype), [](std::byte b) { return b != std::byte{0}; });
}

}  // namespace lockstep
