// What ranks that share a GPU tell each other in main memory: their arenas' segments, what they call, and how far each
// call is, for which streams wait. One mapping of the group's shared memory, page-locked by each process.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <new>
#include <span>

#include "lockstep/backend/device_arena/kernel.h"
#include "lockstep/base/pages.h"
#include "lockstep/base/signature.h"
#include "lockstep/memory/cuda_sharing.h"

namespace lockstep::device_arena {

/// Calls that may be under way at once: collectives, twice (Engine::put_behind), and messages from one rank to another. Two ranks have room for many, as stages of a
/// pipeline need it; of more there are so many pairs.
inline constexpr std::uint64_t collective_slots = 32;
inline constexpr std::uint64_t message_slots_of(int ranks) { return ranks <= 2 ? 64 : 4; }

/// A piece of a rank's arena.
struct ToldSegment {
  cuda::IpcMemory memory;
  cuda::Address address;  ///< in the rank's process
  std::uint64_t bytes;
};

/// What one rank tells of itself. Zero at first.
struct RankCell {
  alignas(64) std::atomic<std::uint32_t> segments;  ///< how many of `told` are
  std::atomic<std::uint32_t> mapped[most_ranks];    ///< how many of each rank's segments this one has mapped
  std::atomic<std::uint32_t> is_ready;              ///< 1: it has mapped all that is needed to begin
  std::atomic<std::uint32_t> is_barred;             ///< 1: CUDA does not let processes share memory here
  std::atomic<std::uint32_t> is_through;            ///< 1: it uses nobody's memory any more; 2: nor this page
  std::atomic<std::uint64_t> process;               ///< another number in each; 0: it has not come yet
  std::uint64_t boards;                             ///< of the first rank: a Place
  ToldSegment told[most_segments];
};

/// A rank's part of a call, told before its kernel runs.
struct Notice {
  std::atomic<std::uint64_t> number;  ///< of the call in its lane, from 1; 0: none yet
  Signature called;
};

/// A view; the memory is the caller's.
class SharedPage {
 public:
  SharedPage(std::span<std::byte> memory, int ranks)
      : memory_(memory), ranks_(static_cast<std::size_t>(ranks)) {}

  static std::size_t slots_of(int ranks) {
    const auto count = static_cast<std::size_t>(ranks);
    return 2 * collective_slots + count * count * message_slots_of(ranks);
  }
  static std::size_t bytes_of(int ranks) {
    const auto count = static_cast<std::size_t>(ranks);
    return base::round_up(count * sizeof(RankCell) +
                          slots_of(ranks) * count * (sizeof(Notice) + sizeof(Progress)));
  }

  std::span<std::byte> memory() const { return memory_; }
  RankCell& cell(int rank) const { return reinterpret_cast<RankCell*>(memory_.data())[rank]; }
  Notice& notice(std::size_t slot, int party) const {
    return reinterpret_cast<Notice*>(memory_.data() + ranks_ * sizeof(RankCell))[at(slot, party)];
  }
  Progress& progress(std::size_t slot, int party) const {
    return reinterpret_cast<Progress*>(memory_.data() + progress_begin())[at(slot, party)];
  }
  /// Where progress(slot, 0) begins in memory().
  std::size_t progress_offset(std::size_t slot) const {
    return progress_begin() + at(slot, 0) * sizeof(Progress);
  }

 private:
  std::size_t at(std::size_t slot, int party) const {
    return slot * ranks_ + static_cast<std::size_t>(party);
  }
  std::size_t progress_begin() const {
    return ranks_ * sizeof(RankCell) + slots_of(static_cast<int>(ranks_)) * ranks_ * sizeof(Notice);
  }

  std::span<std::byte> memory_;
  std::size_t ranks_;
};

}  // namespace lockstep::device_arena
