// A rank may leave processes behind: data loaders, shells in the background, whatever its program started. As
// the reaper of orphans ("child subreaper") the launcher gets each of them as a child of its own when its
// parent ends, and a child of one's own can be killed without the danger of hitting a stranger that has its
// number by now.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <string>
#include <vector>

#include "lockstep/base/deadline.h"

namespace lockstep::launch {

/// From now on orphaned descendants become this process's children. Throws Error{system}.
void become_reaper_of_orphans();

bool has_children();

/// This process's children that are not waited for yet.
std::vector<pid_t> children();

/// For kill_descendants(): the system ends a process that is killed in less, unless its disk hangs.
inline constexpr std::chrono::seconds killing_limit{5};

/// Kills all descendants, generation by generation, and waits for them. Returns how many were there that had
/// not ended by themselves; those that outlive the deadline (a system call that does not return) are left to
/// the system.
int kill_descendants(Deadline deadline);

/// Kills all that a job of this user has left on this host, whoever's children they are: processes with its name in
/// LOCKSTEP_JOB. Throws Error{system} naming those that outlive the deadline.
void end_job(const std::string& job, Deadline deadline);

}  // namespace lockstep::launch
