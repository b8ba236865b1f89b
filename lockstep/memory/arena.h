// A rank's arena: memory that every rank of the host can reach, so that a collective reads each input and
// writes each output where it lies. Where a buffer is travels with each call, so ranks allocate and free on
// their own: no allocation is collective.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "lockstep/memory/arena_block.h"
#include "lockstep/memory/free_ranges.h"
#include "lockstep/memory/host_region.h"
#include "lockstep/memory/registered_memory.h"

namespace lockstep {

/// Where other ranks reach a buffer. Its first and last bytes, where it is registered and they lie in pages with something else in them,
/// have a place there, too, and are not there: who calls copies them, before the others read and after they have written.
struct Reach {
  std::byte* place = nullptr;  ///< in this process
  std::size_t offset = 0;      ///< in the arena
  std::size_t head = 0, tail = 0;

  bool has_edges() const { return head + tail > 0; }
  /// Of a buffer of `bytes`.
  void copy_edges(const std::byte* from, std::byte* to, std::size_t bytes) const {
    std::memcpy(to, from, head);
    std::memcpy(to + bytes - tail, from + bytes - tail, tail);
  }
};

/// First fit over the rank's part of the region. Thread safe. Blocks are aligned to 64 bytes.
class Arena : public std::enable_shared_from_this<Arena> {
 public:
  Arena(std::shared_ptr<HostRegion> region, int local_rank);

  /// Zeroed when it comes fresh from the system, whatever was there before otherwise.
  /// Throws invalid_argument when the arena's address space is used up (how large it is and how to enlarge
  /// it), system when the machine has no memory for it.
  ArenaBlock allocate(std::size_t bytes);

  /// Memory that the program has from elsewhere is in this arena, too, from now on: the whole pages in it are replaced by some of the
  /// arena's, with what is in them. Where ranks are threads, or it has no whole page, nothing is to be done. No thread may write to
  /// `bytes` meanwhile.
  /// Throws Error: invalid_argument (nothing, memory that is not private, or registered already; no room); system.
  /// Cost: two copies, and as much memory again while it lasts.
  RegisteredMemory register_memory(std::span<std::byte> bytes);

  /// Where `bytes` lie in this arena, or are registered; nullopt unless they do as a whole. Cost: nothing to speak of; of
  /// registered memory about a microsecond, since it may have been freed meanwhile, which this notices: for fewer bytes than
  /// `least_registered` it does not look there.
  std::optional<Reach> reach(std::span<const std::byte> bytes, std::size_t least_registered = 0) const;
  /// Where `bytes` lie in this arena; nullopt unless they do as a whole.
  std::optional<std::size_t> offset_of(std::span<const std::byte> bytes) const;

  /// From now on nothing freed is used again: a peer that was stopped may still write there.
  void quarantine();
  /// The same of what is freed where `bytes`, all that a call is given, lie in this arena, until `is_over`
  /// says that nobody can write there any more. It is asked when memory is allocated or freed, under the arena's lock.
  void quarantine(std::span<const std::byte> bytes, std::function<bool()> is_over);
  /// Whether that holds for any of `bytes`, which lie in it.
  bool is_quarantined(std::span<const std::byte> bytes) const;

 private:
  friend class ArenaBlock;
  friend class RegisteredMemory;
  struct Quarantine {
    std::span<const std::byte> bytes;
    std::function<bool()> is_over;  // null: never
  };

  void release(std::span<std::byte> bytes);
  void give_back(std::span<std::byte> bytes);
  void end_quarantines();
  bool overlaps_quarantine(std::span<const std::byte> bytes) const;
  std::optional<Reach> reach_registered(std::span<const std::byte> bytes) const;
  void end_registration(std::span<std::byte> bytes, ArenaBlock block);

  std::shared_ptr<HostRegion> region_;
  int local_rank_;
  std::byte* base_;
  std::size_t capacity_;
  mutable std::mutex mutex_;  // of the four below
  FreeRanges free_;
  std::size_t reserved_ = 0;  // bytes from the start that have memory
  std::vector<Quarantine> quarantines_;
  std::vector<std::span<std::byte>> freed_meanwhile_;  // in some quarantine
  std::atomic<bool> has_quarantine_ = false;  // without the lock, for those who ask at each allocation
  std::atomic<int> registrations_ = 0;
};

}  // namespace lockstep
