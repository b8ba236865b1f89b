// The memory that one group's ranks on one host share: arrival cells, small slots, message rings and the
// arenas. It is one mapping, sparse, whose pages appear when first touched; its first rank makes it, the
// others map it.
//
//   header | progress of each rank | cells [lane][rank] | slots [lane][rank] | staging of each rank |
//   rings [purpose][from][to] | arena of rank 0 | arena of rank 1 | ...
//
// Arenas are in the world's: the regions of groups that are made of it have none, and borrow those.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "lockstep/base/mapping.h"
#include "lockstep/base/signature.h"
#include "lockstep/memory/control_page.h"

namespace lockstep {

/// Works of one group that may be under way at once; work number s uses lane s % lane_count.
inline constexpr std::uint64_t lane_count = 64;
/// Capacity of a slot.
inline constexpr std::size_t slot_bytes = 4096;
/// Payload that travels in the arrival cell itself, in the same cache line as the arrival.
inline constexpr std::size_t inline_slot_bytes = 32;
/// All of a process's address space.
inline constexpr std::size_t most_arena_bytes = std::size_t{1} << 47;
/// Room for a rank's staging memory (schedule/staged.cpp); how much of it is used is a matter of tuning.
inline constexpr std::size_t staging_bytes = std::size_t{4} << 20;
/// Capacity of one message ring, with its counters: as much as a second-level cache holds, so that what is
/// written again has left the reader's (docs/decisions/0007). Memory is taken only by pairs that talk.
inline constexpr std::size_t ring_bytes = std::size_t{1} << 20;

/// Where in its arena a rank's buffers lie: those of which its signature's flags say that they do.
struct BufferOffsets {
  std::uint64_t input = 0;
  std::uint64_t output = 0;
};

/// One rank's arrival at one work. The word is written last; execute/arrivals.cpp says what it is.
/// Two cache lines, of which one is used: processors fetch the second of such a pair along with the first.
struct alignas(128) Cell {
  std::atomic<std::uint64_t> word;
  Signature signature;
  union {
    std::byte payload[inline_slot_bytes];  ///< of small messages
    BufferOffsets offsets;                 ///< of all others
  };
};
static_assert(sizeof(Cell) == 128);

/// How far a rank is. All works with a smaller number than `completed` are complete there.
struct alignas(128) RankProgress {
  std::atomic<std::uint64_t> completed;
  std::atomic<std::uint32_t> has_left;    ///< 1: in an orderly way
  std::atomic<std::uint32_t> has_let_go;  ///< 1: of the group, whose memory it does not touch any more
  std::atomic<std::int32_t> pid;          ///< of the process that it is; 0: not known
};

enum class Purpose : std::uint8_t { collective = 0, point_to_point = 1 };
inline constexpr int purpose_count = 2;

class HostRegion {
 public:
  /// Makes the region as a memfd for `local_ranks` ranks with `arena_bytes` of address space each. Arenas get
  /// huge pages where the system has them. Throws Error: invalid_argument for more than most_arena_bytes;
  /// system.
  static std::shared_ptr<HostRegion> create(int local_ranks, std::size_t arena_bytes);
  /// Maps a region made by another process. corrupt_data if it is none, or not for so many ranks.
  static std::shared_ptr<HostRegion> attach(UniqueFd fd, int local_ranks);
  /// For ranks that are threads of this process.
  static std::shared_ptr<HostRegion> in_process(int local_ranks, std::size_t arena_bytes);

  /// Its ranks have their arenas in `lender`, which lives as long: rank i is number places[i] there. For a region without arenas of its
  /// own, before it is used. Arenas are made (arena.h) of the lender.
  void borrow_arenas(std::shared_ptr<const HostRegion> lender, const std::vector<int>& places);

  int local_ranks() const;
  std::size_t arena_bytes() const;
  /// -1 in process.
  int fd() const { return fd_.get(); }

  /// Why this group failed first.
  FirstCause& first_cause() const;
  RankProgress& progress(int local_rank) const;
  /// Nobody will touch the memory of a call of this group again.
  bool all_have_let_go() const;
  Cell& cell(std::uint64_t work, int local_rank) const {
    return cells_[(work % lane_count) * row_ + static_cast<std::size_t>(local_rank)];
  }
  std::byte* slot(std::uint64_t work, int local_rank) const;
  std::byte* staging(int local_rank) const;
  std::byte* ring(Purpose purpose, int from, int to) const;
  std::byte* arena(int local_rank) const { return arenas_[static_cast<std::size_t>(local_rank)]; }
  /// Of a place in the region, in the file that fd() is.
  std::uint64_t file_offset(const std::byte* place) const {
    return static_cast<std::uint64_t>(place - mapping_.data());
  }
  /// Gives arena pages real memory. Throws Error{system}.
  void reserve_arena(int local_rank, std::size_t offset, std::size_t bytes) const;

 private:
  HostRegion(UniqueFd fd, Mapping mapping);

  UniqueFd fd_;
  Mapping mapping_;
  std::size_t row_;  // local ranks
  Cell* cells_;
  std::size_t slots_ = 0, staging_ = 0, rings_ = 0;  // offsets
  std::vector<std::byte*> arenas_;
  std::shared_ptr<const HostRegion> lender_;  // null: the arenas are its own
};

}  // namespace lockstep
