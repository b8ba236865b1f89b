// The average of gradients on one host, without a copy of them: each rank adds up its share of every bucket
// where the ranks' gradients lie, and writes it there.
//
//     gradients, anywhere in the arenas     rank 0 [  a  |  b  ]    [  a  |  b  ] rank 1
//                                                     \\    \\      //    //
//                                          rank 0 adds a's    rank 1 adds b's
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "lockstep/group/shared_memory.h"
#include "lockstep/train/data_parallel/bucket.h"

namespace lockstep {

/// Bit for bit what an all_reduce in place would give that adds rank by rank. Thread safety: none.
/// Cost: the traffic of that all_reduce, and an all_gather of 8 bytes for each gradient.
class SharedAverage {
 public:
  /// `plans`: of the buckets. REQUIRES: shares_memory(group).
  SharedAverage(const Group& group, std::vector<BucketPlan> plans);

  /// Where this rank's gradient lies, if the others can reach it there.
  std::optional<ArenaPlace> place_of(std::span<const std::byte> gradient) const {
    return lockstep::place_of(group_, gradient);
  }

  /// Collective, in the order of buckets. `gradients`: where those of its slots lie, as words. Nobody uses them until every rank has
  /// added up its share; they are averages then. No two have memory in common.
  Work tell(std::size_t bucket, std::span<const std::uint64_t> gradients);
  /// REQUIRES: the Work of tell() is over. All is done when all ranks have returned from here: they have to
  /// meet afterwards. Throws Error{mismatch} if a rank told of another bucket.
  void add_up(std::size_t bucket, double scale);

 private:
  struct Part {
    BucketPlan plan;
    // A word that says which bucket it is, then the places of its gradients: this rank's, and all ranks'.
    std::uint64_t signature = 0;
    std::vector<std::uint64_t> mine = {}, all = {};
  };
  Group group_;
  std::vector<Part> parts_;
};

}  // namespace lockstep
