// A job that failed leaves a file from which can be told which rank was where, and why the others waited.
// What the ranks did stands in the control page, which survives them; how their processes were when the
// failure was noticed has to be looked up then, because the launcher ends them soon after.
#pragma once

#include <sys/types.h>

#include <span>
#include <string>
#include <vector>

#include "lockstep/launch/verdict.h"
#include "lockstep/memory/control_page.h"
#include "lockstep/trace/flight_record.h"

namespace lockstep::launch {

/// What the page holds. States and endings of processes are left open, and so are job and at_ns. `world_ranks`: those of its
/// ranks, if that is known; else they are looked for in what the ranks say of their groups. `ranks_in_all`: of all records
/// that will be joined with it, 0: its own.
trace::FlightRecord read_record(const ControlPage& page, const std::vector<int>& world_ranks = {},
                                int ranks_in_all = 0);

/// As the kernel sees it now.
trace::ProcessState state_of(pid_t pid);

/// The records of all hosts as one. REQUIRES: one at least.
trace::FlightRecord join_records(std::vector<trace::FlightRecord> hosts);

/// After the end of all ranks: writes `folder`/`job`/flight_record.json. Returns a line for the user, how to read it or why it
/// could not be written; nothing if no rank has used Lockstep.
std::string leave_record(const std::string& folder, const std::string& job, trace::FlightRecord record,
                         std::span<const Ending> endings);

}  // namespace lockstep::launch
