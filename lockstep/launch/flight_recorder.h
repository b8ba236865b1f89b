// A job that failed leaves a file from which can be told which rank was where, and why the others waited.
// What the ranks did stands in the control page, which survives them; how their processes were when the
// failure was noticed has to be looked up then, because the launcher ends them soon after.
#pragma once

#include <sys/types.h>

#include <span>
#include <string>
#include <vector>

#include "lockstep/launch/verdict.h"
#include "lockstep/trace/flight_record.h"

namespace lockstep::launch {

/// As the kernel sees it now.
trace::ProcessState state_of(pid_t pid);

/// How each rank's process ended, and what it took.
void note_endings(trace::FlightRecord& record, std::span<const Ending> endings);

/// The records of all hosts as one. REQUIRES: one at least.
trace::FlightRecord join_records(std::vector<trace::FlightRecord> hosts);

/// After the end of all ranks: writes `folder`/`record.job`/flight_record.json. Returns a line for the user, how to read it or
/// why it could not be written; nothing if no rank has used Lockstep.
std::string leave_record(const std::string& folder, const trace::FlightRecord& record);

}  // namespace lockstep::launch
