// Which algorithm a call gets. A choice rests only on facts that all ranks share: the call, who shares a
// host, and the thresholds that rank 0 read at init and broadcast.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "lockstep/schedule/schedule.h"

namespace lockstep {

/// Rank 0's, the same on all ranks of a job. Trivially copyable: it is broadcast as bytes.
struct Tuning {
  /// Inside a host, messages up to this many bytes go through the slots: one wait instead of two.
  std::uint64_t one_shot_bytes = 2048;
  /// Over channels, all-reduces up to this many bytes take the tree, longer ones the ring.
  std::uint64_t tree_bytes = 32768;
  /// Largest message over a channel.
  std::uint64_t segment_bytes = 131072;

  /// Reads LOCKSTEP_ONE_SHOT_BYTES, LOCKSTEP_TREE_BYTES and LOCKSTEP_SEGMENT_BYTES over the defaults.
  static Tuning from_environment();
};

struct Choice {
  std::string_view name;  ///< as in docs/algorithms.md, e.g. "arena_push"
  Algorithm algorithm = nullptr;
};

/// Facts about the group that the choice needs.
struct Neighbourhood {
  bool one_host = true;        ///< all ranks share memory
  std::size_t slot_bytes = 0;  ///< capacity of a slot; 0 where there are none
};

/// Whether the call takes the slots, which every rank can tell before it knows the others' buffers.
bool is_one_shot(const Call& call, std::size_t element_bytes, const Neighbourhood& where,
                 const Tuning& tuning);

Choice select(const Call& call, std::size_t element_bytes, const Neighbourhood& where, const Tuning& tuning);

}  // namespace lockstep
