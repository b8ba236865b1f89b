// A job that hangs has not failed yet, and may not for minutes; one that trains wants to be watched. Its control page is a
// file without a name, but every process that has it open shows it to whoever may look at that process.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "lockstep/memory/control_page.h"
#include "lockstep/trace/flight_record.h"

namespace lockstep::launch {

struct RunningJob {
  pid_t pid = 0;          ///< of its `lockstep run`; under other launchers of one of its ranks
  pid_t holder = 0;       ///< the process in which its control page is found
  std::string name = {};  ///< as the launcher calls it; "": it has none
};

/// This user's on this host, by `pid`.
std::vector<RunningJob> running_jobs();

/// That of a process or of those below it; `pid` stays what was passed. Throws invalid_argument if there is none that is ours
/// to look at.
RunningJob running_job_of(pid_t pid);

/// A job's control page as it is now: where ranks start again, the next attempt's. nullopt: there is none at the moment, or
/// the job is over. Nothing of the job is changed, and none of its processes notices. Throws corrupt_data if the job is of
/// another version of Lockstep.
std::optional<ControlPage> page_of(const RunningJob& job);

/// Tells one attempt's page from the next one's; 0: there is none.
ino_t page_number_of(const RunningJob& job);

/// How the processes of ranks are now.
void note_states(trace::FlightRecord& record);

/// What the ranks of a running job do now. `pid`: of the job's `lockstep run`, or of one of its ranks. Throws as
/// running_job_of() and page_of() do.
trace::FlightRecord read_running_job(pid_t pid);

}  // namespace lockstep::launch
