// Proves an algorithm for one call: runs every rank's steps symbolically, over expression trees instead of
// numbers, and refuses the schedule unless the result is right whatever the timing.
//
// What is proven
//   result      every output element holds what the operation promises: a reduction every rank's
//               contribution exactly once, scaled exactly once, in the order of ranks where that is asked
//               for; all_reduce the same expression on all ranks, roundings on the way included
//   no deadlock with unbuffered sends: a send is complete only when its receiver has posted the receive
//   no races    any two accesses to an element of which one writes are ordered by the schedule (vector
//               clocks), also where input and output are one buffer; a send reads and a receive writes
//               from its post to its wait; the user's own accesses come before a rank's first step and
//               after its last
//   matching    sends and receives agree in count and none is left over; each is waited for
//   exchanges   all whom they concern start the same ones in the same order, and wait for them
//   bounds      every place lies inside its memory; other ranks' memory is touched only where it is shared
// Cost: O(steps x elements x ranks); meant for tests.
#pragma once

#include <string>
#include <vector>

#include "lockstep/schedule/schedule.h"

namespace lockstep::schedule {

struct Verdict {
  bool proven = false;
  std::string reason;  ///< why it was refused, naming ranks, places and steps; empty if proven
  explicit operator bool() const { return proven; }
};

/// `call.rank` is ignored: all ranks run. At most 64 ranks.
Verdict verify(Algorithm algorithm, const Call& call);

/// The same where ranks' calls differ in more than the rank: all_to_all's v form, or some are in place.
Verdict verify(Algorithm algorithm, const std::vector<Call>& calls);

/// The same for schedules made elsewhere, one per rank, as tests that break one on purpose do.
Verdict verify(const std::vector<Schedule>& schedules, const std::vector<Call>& calls);

/// `call` as each rank makes it.
std::vector<Call> calls_of_all(const Call& call);

}  // namespace lockstep::schedule
