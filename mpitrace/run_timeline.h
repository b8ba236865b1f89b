// The timeline of a run from MPI_Init to MPI_Finalize: a file of events for each rank, and at the end rank 0 makes one timeline
// of all. Where ranks do not come to that, `lockstep profile` does (rescue.h).
#pragma once

#include <cstdint>
#include <string>

#include "mpitrace/events.h"

namespace lockstep::mpitrace {

struct TimelineRun {
  int rank = 0;
  int ranks = 1;
  std::string job, run;
  std::uint64_t start = 0;  ///< the same on all ranks, and of no other start of a job
  std::string folder;       ///< for the ranks' files
  std::string timeline;     ///< the file that is wanted
};

/// Why `timeline` could not be written; "" if it can.
std::string problem_with(const std::string& timeline);

/// Null where this rank has no room for its events, of which the first such rank tells. Collective over MPI_COMM_WORLD.
Events* begin_timeline(const TimelineRun& run);

/// Rank 0 writes the timeline and says so, and the files of the ranks that are in it go. Collective over MPI_COMM_WORLD; `events`
/// as begin_timeline() returned it.
void end_timeline(const TimelineRun& run, Events* events);

}  // namespace lockstep::mpitrace
