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
#include "lockstep/train/tensor/gradient_size.h"

namespace lockstep {

struct BucketLimits {
  /// A bucket is full when it holds at least so many bytes. The first is small, to begin early.
  std::size_t first_bytes = std::size_t{1} << 20;
  std::size_t cap_bytes = std::size_t{25} << 20;
};

/// What lies where in a bucket. Counted in elements of `dtype`.
struct BucketPlan {
  struct Slot {
    std::size_t parameter = 0;
    std::size_t begin = 0;  ///< on a border of 64 bytes
    std::size_t elements = 0;
  };
  Dtype dtype = Dtype::f32;
  std::vector<Slot> slots;
  std::size_t elements = 0;  ///< with the gaps between slots
};

/// From the last parameter to the first: about the order in which backward comes to them.
std::vector<std::size_t> backward_order(std::size_t parameters);

/// Buckets in the order in which they are sent, one type in each. `order`: parameters as their gradients
/// become ready; those that are not in it are in no bucket. Pure: the same on all ranks that pass the same.
std::vector<BucketPlan> plan_buckets(std::span<const GradientSize> parameters,
                                     std::span<const std::size_t> order, const BucketLimits& limits);

/// A plan's memory in the arena, zeroed. The memory lives as long as any copy of `keep_alive()`.
class Bucket {
 public:
  /// `in_own_pages`: nothing else lies in the pages that it takes, as PageLocked wants it.
  Bucket(const Group& group, const BucketPlan& plan, bool in_own_pages = false);

  std::span<std::byte> bytes() const { return bytes_; }
  std::byte* slot_data(const BucketPlan::Slot& slot) const {
    return bytes_.data() + slot.begin * size_of(dtype_);
  }
  std::shared_ptr<const void> keep_alive() const { return block_; }

 private:
  Dtype dtype_;
  std::shared_ptr<ArenaBlock> block_;
  std::span<std::byte> bytes_;
};

}  // namespace lockstep
