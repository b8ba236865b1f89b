// A rank's events out of its file (events.h). The rank may have been killed at any moment, the file cut, or written by a
// program that went wild: what makes sense is taken, and what does not is counted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "lockstep/view/profile/timeline.h"
#include "mpitrace/events.h"

namespace lockstep::mpitrace {

/// What stands at the beginning of the file.
struct RankAbout {
  int rank = 0, ranks = 1, pid = 0;
  std::string host, job, run;
  std::string timeline;     ///< the file that is wanted
  std::uint64_t start = 0;  ///< the same on all ranks of one start of a job
  std::uint64_t clock = 0;  ///< the same on ranks that have one clock
  std::vector<ClockExchange> exchanged = {};
};

/// Throws Error{corrupt_data} for what is no events' file of this version; `what` stands in it.
RankAbout read_about(std::span<const std::byte> file, const std::string& what);

struct RankEvents {
  view::RankTimeline timeline;  ///< in the rank's own clock; communicators by their places in `names`, from 1
  std::vector<std::string> names;  ///< of communicators
  std::vector<std::string> notes;  ///< what is missing, but for what had no room
};
/// Throws as read_about().
RankEvents read_events(std::span<const std::byte> file, const std::string& what);

}  // namespace lockstep::mpitrace
