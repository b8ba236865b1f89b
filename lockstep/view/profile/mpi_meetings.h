// Which calls of MPI's ranks are one collective: those of a communicator by their order, as far as that can be seen in a timeline, where
// each rank has its own list of calls, from which some may be missing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "lockstep/view/profile/timeline.h"

namespace lockstep::view {

/// One collective that no rank leaves before all have come to it.
struct MpiMeeting {
  struct Member {
    std::size_t place;  ///< of its rank in the list
    std::size_t call;   ///< in RankTimeline::mpi_calls
  };
  std::vector<Member> members;  ///< two at least, each rank once
};

struct MpiMeetings {
  std::vector<MpiMeeting> all;
  bool are_lost =
      false;  ///< of some communicator calls are missing, and no two of it are taken for one collective
};

/// Of blocking collectives in which all wait for all: barriers, and those that give all ranks what all have. Communicators of different
/// ranks are one where they have one name. `clock_error_ns`: the most that clocks of ranks are apart.
MpiMeetings mpi_meetings(const std::vector<RankTimeline>& ranks, std::uint64_t clock_error_ns);

/// Notes in each call of a meeting when the last rank had come, unless a barrier has told better. The same arguments.
void note_arrivals(std::vector<RankTimeline>& ranks, std::uint64_t clock_error_ns);

}  // namespace lockstep::view
