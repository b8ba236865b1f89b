#include "lockstep/train/shared_average.h"

#include <algorithm>

#include "lockstep/group/collectives.h"
#include "lockstep/kernel/reduce.h"

namespace lockstep {
namespace {

constexpr std::size_t line_bytes = 64;

std::span<std::byte> bytes_of(std::vector<ArenaPlace>& places) {
  return std::as_writable_bytes(std::span(places));
}

}  // namespace

SharedAverage::SharedAverage(const Group& group, std::span<const Bucket> buckets) : group_(group) {
  const auto ranks = static_cast<std::size_t>(group.size());
  std::vector<ArenaPlace> mine, all(ranks * buckets.size());
  for (const Bucket& bucket : buckets) mine.push_back(lockstep::place_of(group, bucket.bytes()).value());
  all_gather_bytes(group, bytes_of(mine), bytes_of(all)).wait();
  for (std::size_t number = 0; number < buckets.size(); ++number) {
    Part& part = parts_.emplace_back();
    part.plan = buckets[number].plan();
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      const ArenaPlace& place = all[rank * buckets.size() + number];
      part.places.push_back(memory_at(group, place, buckets[number].bytes().size()).data());
    }
  }
}

Work SharedAverage::tell(std::size_t bucket, std::span<const ArenaPlace> gradients) {
  Part& part = parts_[bucket];
  part.mine.assign(gradients.begin(), gradients.end());
  part.gradients.resize(gradients.size() * static_cast<std::size_t>(group_.size()));
  return all_gather_bytes(group_, bytes_of(part.mine), bytes_of(part.gradients));
}

void SharedAverage::add_up(std::size_t bucket, double scale) {
  const Part& part = parts_[bucket];
  const auto ranks = static_cast<std::size_t>(group_.size());
  const std::size_t size = size_of(part.plan.dtype);
  // This rank's share, in whole cache lines.
  const std::size_t lines = (part.plan.elements * size + line_bytes - 1) / line_bytes;
  const auto border = [&](std::size_t rank) {
    return std::min(part.plan.elements, lines * rank / ranks * (line_bytes / size));
  };
  const std::size_t first = border(static_cast<std::size_t>(group_.rank()));
  const std::size_t last = border(static_cast<std::size_t>(group_.rank()) + 1);
  std::vector<const std::byte*> sources(ranks);
  std::vector<std::byte*> destinations(ranks);
  for (std::size_t number = 0; number < part.plan.slots.size(); ++number) {
    const BucketPlan::Slot& slot = part.plan.slots[number];
    const std::size_t begin = std::max(first, slot.begin);
    const std::size_t end = std::min(last, slot.begin + slot.elements);
    if (begin >= end) continue;
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      const ArenaPlace& place = part.gradients[rank * part.plan.slots.size() + number];
      sources[rank] = memory_at(group_, place, slot.elements * size).data() + (begin - slot.begin) * size;
      destinations[rank] = part.places[rank] + begin * size;
    }
    reduce(part.plan.dtype, ReduceOp::sum, end - begin, sources, destinations, scale);
  }
}

}  // namespace lockstep
