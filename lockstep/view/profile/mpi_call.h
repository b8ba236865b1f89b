// A call of MPI's in a timeline: of a program that is profiled by preloading (mpitrace/), whoever started it.
#pragma once

#include <cstdint>
#include <string_view>

namespace lockstep::view {

/// Which other ranks an MPI routine names.
enum class MpiPeers : std::uint8_t { none, root, to, from, to_and_from, target };

/// In place of a rank.
inline constexpr std::int32_t mpi_any_rank = -1, mpi_no_rank = -2, mpi_root_here = -3;

/// "any", "none" or "here"; "" for a rank.
inline std::string_view mpi_rank_name(std::int32_t rank) {
  switch (rank) {
    case mpi_any_rank: return "any";
    case mpi_no_rank: return "none";
    case mpi_root_here: return "here";
    default: return "";
  }
}

/// Times as in RankTimeline.
struct MpiCall {
  std::uint64_t begin_ns = 0;
  std::uint64_t arrived_ns = 0;  ///< when all ranks had come to it, if that is known
  std::uint64_t end_ns = 0;
  std::uint64_t bytes = 0;
  std::string_view routine = {};    ///< of a list that lives as long as the process
  std::uint32_t communicator = 0;   ///< of Timeline::groups; 0: it has none
  std::uint32_t thread = 0;         ///< of the process, from 0
  std::int32_t peer = mpi_no_rank;  ///< of the communicator: the root, the target, or where it sends to
  std::int32_t source = mpi_no_rank;
  MpiPeers peers = MpiPeers::none;
  bool has_arrived =
      false;  ///< arrived_ns is known: of a collective by a barrier before it, or by when the others came
  bool has_bytes = false;
  bool has_returned = true;  ///< false: the rank ended in it
};

}  // namespace lockstep::view
