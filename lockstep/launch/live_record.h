// A job that hangs has not failed yet, and may not for minutes; one that trains wants to be watched. Its control page is a
// file without a name, but every process that has it open shows it to whoever may look at that process.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <utility>
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

/// A job's control pages, one after the other: where ranks start again, each attempt has one. Nothing of the job is changed, and
/// none of its processes notices.
class JobPages {
 public:
  explicit JobPages(RunningJob job) : job_(std::move(job)) {}

  const RunningJob& job() const { return job_; }
  /// That of an attempt that was not there at the last call; nullopt: there is none, or the job is over. Throws corrupt_data if the
  /// job is of another version of Lockstep.
  std::optional<ControlPage> next();

 private:
  RunningJob job_;
  ino_t number_ = 0;
};

/// How the processes of ranks are now.
void note_states(trace::FlightRecord& record);

/// What the ranks of a page do now.
trace::FlightRecord read_running(const ControlPage& page);
/// The same of a running job. `pid`: of the job's `lockstep run`, or of one of its ranks. Throws as running_job_of() and
/// JobPages::next() do.
trace::FlightRecord read_running_job(pid_t pid);

}  // namespace lockstep::launch
