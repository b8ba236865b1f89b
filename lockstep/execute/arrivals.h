// Arrivals are how ranks of one host meet: each rank has a cell per lane, in which it says that it has
// reached a stage of a work, and what it called. Signature and small payloads lie in the same cache line as
// the arrival.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "lockstep/memory/host_region.h"

namespace lockstep {

/// One rank's view. Ranks are numbered as in the region; in a group on one host, as in the group.
/// Works are numbered from 0; each has lane_count successors before its lane is used again.
class Arrivals {
 public:
  Arrivals(std::shared_ptr<HostRegion> region, int rank, int ranks, Doorbell& doorbell);

  /// Whether all ranks are past the work that had this one's lane before.
  bool lane_is_free(std::uint64_t work);
  /// Says what this rank calls. REQUIRES: lane_is_free(work). Nobody sees it before arrive().
  void announce(std::uint64_t work, const Signature& signature);
  /// The same for calls whose payload does not travel in slots.
  void announce(std::uint64_t work, const Signature& signature, const BufferOffsets& offsets);
  void arrive(std::uint64_t work, std::uint32_t stage);
  /// Prefetches this rank's cell of that work, which others have read when its lane was used before.
  void take_cell(std::uint64_t work) const;
  bool have_all_arrived(std::uint64_t work, std::uint32_t stage) const;
  /// Prefetches the other ranks' cells, who have arrived most likely. Call it right before arrive(), so that
  /// these cells and our own travel at the same time.
  void fetch_cells(std::uint64_t work) const;
  /// Looks so many times, as fast as it can, and returns whether all have arrived. For works so small that
  /// all arrive at once. `last_look_ns`: set to the time of each look (record_now_ns()) that found some
  /// missing.
  bool spin_until_all_arrived(std::uint64_t work, std::uint32_t stage, int looks,
                              std::uint64_t& last_look_ns) const;
  bool has_arrived(std::uint64_t work, std::uint32_t stage, int rank) const;
  /// REQUIRES: has_arrived(work, 1, rank).
  const Signature& signature(std::uint64_t work, int rank) const {
    return region_->cell(work, rank).signature;
  }

  /// REQUIRES: the same, and that the call's payload does not travel in slots.
  const BufferOffsets& offsets(std::uint64_t work, int rank) const {
    return region_->cell(work, rank).offsets;
  }

  /// All works before `work` are complete on this rank.
  void complete_through(std::uint64_t work);

  /// Where a rank's slot for a payload of `bytes` lies: in the cell if it fits there.
  std::byte* slot(std::uint64_t work, int rank, std::size_t bytes) const;

 private:
  std::shared_ptr<HostRegion> region_;
  int rank_;
  int ranks_;
  Doorbell* doorbell_;
  std::uint64_t completed_by_all_ = 0;  // a lower bound
};

}  // namespace lockstep
