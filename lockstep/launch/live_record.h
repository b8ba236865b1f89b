// A job that hangs has not failed yet, and may not for minutes. Its control page is a file without a name,
// but every process that has it open shows it to whoever may look at that process.
#pragma once

#include <sys/types.h>

#include "lockstep/trace/flight_record.h"

namespace lockstep::launch {

/// What the ranks of a running job do now. `pid`: of the job's `lockstep run`, or of one of its ranks.
/// Nothing of the job is changed, and none of its processes notices. Throws Error: invalid_argument if that
/// process and those below it have joined no job, or are not ours to look at; corrupt_data if the job is of
/// another version of Lockstep.
trace::FlightRecord read_running_job(pid_t pid);

}  // namespace lockstep::launch
