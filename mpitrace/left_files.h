// The files that ranks map beside their profile, and what of them is left of ranks that are gone.
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/deadline.h"

namespace lockstep::mpitrace {

inline constexpr std::string_view table_beginning = ".lockstep_mpitrace.",
                                  events_beginning = ".lockstep_mpievents.";

/// ".lockstep_mpitrace.JOB.RANK".
std::string rank_file(const std::string& folder, std::string_view beginning, const std::string& job,
                      int rank);

/// Paths of what is there with such a beginning, in order. Throws Error{system} for a folder that cannot be read.
std::vector<std::string> files_with(const std::string& folder, std::string_view beginning);

/// Locks a rank's file. False if its rank lives at the deadline, or lives and the text of its run, which stands at `run_at` in
/// the file, is another than `run` ("": of any).
bool lock_left_file(int fd, const std::string& run, off_t run_at, Deadline deadline);

}  // namespace lockstep::mpitrace
