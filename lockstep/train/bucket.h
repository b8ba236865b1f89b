// Sending each gradient alone would cost a wait per parameter; sending all at once would leave nothing to do
// while backward runs. So gradients travel in buckets: backward produces gradients roughly from the last
// parameter to the first, and a bucket is full when it is worth a collective.
//
//   parameters      0     1     2     3     4     5        backward goes  <----
//   buckets      [ 2 ][    1      ][     0     ]           sent in the order 0, 1, 2, the same on all ranks
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "lockstep/base/dtype.h"
#include "lockstep/group/group.h"

namespace lockstep {

struct BucketLimits {
  /// A bucket is full when it holds at least so many bytes. The first is small, to begin early.
  std::size_t first_bytes = std::size_t{1} << 20;
  std::size_t cap_bytes = std::size_t{25} << 20;
};

struct GradientSize {
  std::size_t elements = 0;
  Dtype dtype = Dtype::f32;
};

/// What lies where in a bucket. Counted in elements of `dtype`.
struct BucketPlan {
  struct Slot {
    std::size_t parameter = 0;
    std::size_t begin = 0;  ///< on a border of 64 bytes
  };
  Dtype dtype = Dtype::f32;
  std::vector<Slot> slots;
  std::size_t elements = 0;  ///< with the gaps between slots and one element more: the flag
  /// The last element is no gradient: a rank that has something to tell the others sets it (see reducer.h).
  std::size_t flag() const { return elements - 1; }
};

/// Buckets in the order in which they are sent: parameters from the last to the first, one type in each
/// bucket. Pure: the same on all ranks that pass the same.
std::vector<BucketPlan> plan_buckets(std::span<const GradientSize> parameters, const BucketLimits& limits);

/// A plan with memory in the arena, zeroed. The memory lives as long as any copy of `keep_alive()`.
class Bucket {
 public:
  Bucket(const Group& group, BucketPlan plan);

  const BucketPlan& plan() const { return plan_; }
  std::span<std::byte> bytes() const { return bytes_; }
  std::byte* slot_data(const BucketPlan::Slot& slot) const { return element(slot.begin); }
  void set_flag(bool value);
  bool flag_is_set() const;
  std::shared_ptr<const void> keep_alive() const { return block_; }

 private:
  std::byte* element(std::size_t index) const { return bytes_.data() + index * size_of(plan_.dtype); }

  BucketPlan plan_;
  std::shared_ptr<Arena::Block> block_;
  std::span<std::byte> bytes_;
};

}  // namespace lockstep
