// What the ranks of this host have left in their control page, as a flight record.
#pragma once

#include <vector>

#include "lockstep/memory/control_page.h"
#include "lockstep/trace/flight_record.h"

namespace lockstep::view {

/// What the page holds. States and endings of processes are left open, and so are job and at_ns. `world_ranks`: those of its
/// ranks, if that is known; else they are looked for in what the ranks say of their groups. `ranks_in_all`: of all records
/// that will be joined with it, 0: its own. `most_events`: of each rank, the last ones.
trace::FlightRecord read_record(const ControlPage& page, const std::vector<int>& world_ranks = {},
                                int ranks_in_all = 0, std::size_t most_events = trace::ring_capacity);

}  // namespace lockstep::view
