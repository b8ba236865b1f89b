// The profile of a program's calls so far, where the program itself wants to say when.
#pragma once

#include <string>

#include "lockstep/group/group.h"

namespace lockstep {

/// Collective over the world. Writes `folder`/lockstep_profile.JOB.RANK, docs/profiling.md, with all calls of the process until
/// now, on the ranks with the least, the median and the most communication and on rank 0, or with `all_ranks` on each. The
/// folder is made where it is missing. Cost: an all_gather of 48 bytes, and the files.
/// Throws Error: system on a rank that cannot write; invalid_argument for a group that is not the world; as all_gather does.
void write_profile(const Group& world, const std::string& folder, bool all_ranks = false);

}  // namespace lockstep
