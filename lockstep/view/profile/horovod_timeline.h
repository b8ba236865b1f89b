// A timeline with Horovod's event names, for what reads those (Horovod's docs/timeline.rst):
//
//   grad.0   [NEGOTIATE_ALLREDUCE |0 |1     ][ALLREDUCE [QUEUE][LOCKSTEP_ALLREDUCE]]
//
// Each tensor is a process. 0 and 1 are the moments at which these ranks were ready. Named operations (Horovod's way) have their
// own names, other calls those of operation and group. Times after the negotiation are the first rank's, as Horovod's are.
#pragma once

#include <functional>
#include <string_view>

#include "lockstep/view/profile/timeline.h"

namespace lockstep::view {

/// As write_timeline(). Steps, the program's own ranges, messages and MPI calls are not in it: Horovod has no names for them.
void write_horovod_timeline(const Timeline& timeline, const std::function<void(std::string_view)>& write);

}  // namespace lockstep::view
