// A job hung or failed, and every rank waits for some other: whose fault is it? The first line of the answer
// names the cause; then each rank has a line that says where it was.
#pragma once

#include <string>

#include "lockstep/trace/flight_record.h"

namespace lockstep::view {

/// Lines of text. The first begins with the kind of the cause:
///
///   mismatch       ranks called different things as one collective
///   dead rank      one ended, or left, and others waited for it
///   failed rank    one gave a call up, or an error ended it
///   slow rank      one did not come, stopped or busy elsewhere
///   crossed calls  ranks waited for one another in different calls
///   circle of messages   the same, and all of them sent or received
///   failure        what the ranks said, where the record shows no more
///   nothing is wrong     nobody waited long
std::string explain(const trace::FlightRecord& record);

/// The same of a job that goes on and stands still, without what its ranks say themselves when they wait long (who
/// waits for whom, in which call): the cause, and where those are that wait for nobody, if there are several.
std::string explain_standstill(const trace::FlightRecord& record);

}  // namespace lockstep::view
