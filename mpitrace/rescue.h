// Profiles and timelines of ranks that ended before MPI_Finalize, from the files that they had mapped. A rank keeps its file locked while
// it lives, so that a file that can be locked belongs to nobody any more.
#pragma once

#include <string>
#include <vector>

namespace lockstep::mpitrace {

struct Rescued {
  std::vector<std::string> lines;  ///< what to tell people
  bool has_failed = false;
};
/// Looks through `folder` for tables of the run `run` ("": of any), writes profiles as MPI_Finalize would have, and removes
/// the tables; `all`: a profile for each rank. For ranks of a named run that are still coming to their end it waits, some
/// seconds at most. Throws Error{system} for a folder that cannot be read.
Rescued rescue(const std::string& folder, const std::string& run, bool all);

/// The same for events: a timeline of each job, where its ranks were told to write it, or in the file `wanted` if that is not
/// "" (of several jobs with their names before its ending).
Rescued rescue_timelines(const std::string& folder, const std::string& run, const std::string& wanted);

}  // namespace lockstep::mpitrace
