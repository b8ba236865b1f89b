// The first moments of a wait, before it becomes one: looks as fast as can be, for what is on its way most
// likely.
#pragma once

#include <cstdint>

#include "lockstep/base/wait.h"
#include "lockstep/trace/clock.h"

namespace lockstep {

/// Looks so often whether `is_there()`, and returns whether it was. `last_look_ns`: set to the time
/// (record_now_ns()) of each look in vain.
template <class IsThere>
bool look_shortly(int looks, std::uint64_t& last_look_ns, IsThere is_there) {
  for (int look = 0; look < looks; ++look) {
    if (is_there()) return true;
    last_look_ns = trace::record_now_ns();
    // A pause takes longer than another core's line; the first looks do without.
    if (look >= looks / 2) spin_pause();
  }
  return false;
}

}  // namespace lockstep
