// The arenas of a host as memory that all its ranks see: for what is built on them beside the collectives.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "lockstep/group/group.h"

namespace lockstep {

/// A place that each rank of the host finds at an address of its own.
struct ArenaPlace {
  int rank = 0;  ///< of the group: whose arena it is
  std::size_t offset = 0;
};

/// In 8 bytes, for other ranks; never 0 or 1.
constexpr std::uint64_t to_word(const ArenaPlace& place) {
  return static_cast<std::uint64_t>(place.rank + 1) << 48 | place.offset;
}
constexpr ArenaPlace place_of_word(std::uint64_t word) {
  return {static_cast<int>(word >> 48) - 1, word & ((std::uint64_t{1} << 48) - 1)};
}

/// Whether all ranks of `group` reach each other's arenas: they are two at least, and on one host.
bool shares_memory(const Group& group);

/// Where `bytes` lie; nullopt unless they do as a whole in one arena of this group.
std::optional<ArenaPlace> place_of(const Group& group, std::span<const std::byte> bytes);

/// The memory there. It is mapped as long as the group or `memory_of(group)` lives; whether it is in use is
/// its rank's to say. Throws Error{invalid_argument} if it is not inside of an arena. REQUIRES:
/// shares_memory().
std::span<std::byte> memory_at(const Group& group, const ArenaPlace& place, std::size_t bytes);
std::shared_ptr<const void> memory_of(const Group& group);

/// Of a group that has failed: nothing that is freed at `bytes` is used again before no rank can write there any more.
void keep_from_reuse(const Group& group, std::span<const std::byte> bytes);

/// One piece of memory for all ranks, in the arena of rank 0; where ranks do not share memory, each has its
/// own. Ranks let go of it when they like: rank 0 uses the memory again only when the last of them has.
class SharedBlock {
 public:
  /// Collective. Throws on all ranks if one of them has no room: Error{invalid_argument, system}.
  SharedBlock(const Group& group, std::size_t bytes);
  SharedBlock(const SharedBlock&) = delete;
  SharedBlock& operator=(const SharedBlock&) = delete;
  ~SharedBlock();
  std::span<std::byte> bytes() const { return bytes_; }

 private:
  std::shared_ptr<const void> mapping_;
  ArenaBlock block_;                             // empty on all ranks but its owner
  std::atomic<std::uint32_t>* users_ = nullptr;  // before the bytes
  std::span<std::byte> bytes_;
};

}  // namespace lockstep
