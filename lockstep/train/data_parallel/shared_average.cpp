#include "lockstep/train/data_parallel/shared_average.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/hash.h"
#include "lockstep/group/collectives.h"
#include "lockstep/kernel/reduce.h"

namespace lockstep {
namespace {

constexpr std::size_t line_bytes = 64;

/// The same on all ranks for the same bucket of the same model, and no place.
std::uint64_t signature_of(const BucketPlan& plan, std::size_t number) {
  std::vector<std::uint64_t> words = {number, static_cast<std::uint64_t>(plan.dtype)};
  for (const auto& slot : plan.slots) words.insert(words.end(), {slot.parameter, slot.elements});
  return fnv1a_64({reinterpret_cast<const char*>(words.data()), words.size() * sizeof words[0]});
}

}  // namespace

SharedAverage::SharedAverage(const Group& group, std::vector<BucketPlan> plans) : group_(group) {
  for (BucketPlan& plan : plans) {
    const std::uint64_t signature = signature_of(plan, parts_.size());
    parts_.push_back({.plan = std::move(plan), .signature = signature});
  }
}

Work SharedAverage::tell(std::size_t bucket, std::span<const std::uint64_t> gradients) {
  Part& part = parts_[bucket];
  part.mine.assign(1, part.signature);
  part.mine.insert(part.mine.end(), gradients.begin(), gradients.end());
  part.all.resize(part.mine.size() * static_cast<std::size_t>(group_.size()));
  return all_gather(group_, part.mine, part.all);
}

void SharedAverage::add_up(std::size_t bucket, double scale) {
  const Part& part = parts_[bucket];
  const auto ranks = static_cast<std::size_t>(group_.size());
  const std::size_t size = size_of(part.plan.dtype);
  const std::size_t words = part.plan.slots.size() + 1;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    if (part.all[rank * words] == part.signature) continue;
    const int culprit = group_.world_rank(static_cast<int>(rank));
    throw Error(ErrorCode::mismatch,
                "rank " + std::to_string(culprit) + " averages other gradients than this rank's bucket " +
                    std::to_string(bucket) + ": run the same backwards in the same order on every rank",
                culprit);
  }
  // This rank's share, in whole cache lines.
  const std::size_t lines = (part.plan.elements * size + line_bytes - 1) / line_bytes;
  const auto border = [&](std::size_t rank) {
    return std::min(part.plan.elements, lines * rank / ranks * (line_bytes / size));
  };
  const std::size_t first = border(static_cast<std::size_t>(group_.rank()));
  const std::size_t last = border(static_cast<std::size_t>(group_.rank()) + 1);
  std::vector<std::byte*> places(ranks);
  for (std::size_t number = 0; number < part.plan.slots.size(); ++number) {
    const BucketPlan::Slot& slot = part.plan.slots[number];
    const std::size_t begin = std::max(first, slot.begin);
    const std::size_t end = std::min(last, slot.begin + slot.elements);
    if (begin >= end) continue;
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      const ArenaPlace place = place_of_word(part.all[rank * words + 1 + number]);
      places[rank] = memory_at(group_, place, slot.elements * size).data() + (begin - slot.begin) * size;
    }
    kernel::reduce(part.plan.dtype, ReduceOp::sum, end - begin, places, places, scale);
  }
}

}  // namespace lockstep
