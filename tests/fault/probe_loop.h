// What script/soak kills: collectives one after the other, for ever, each checked, until one fails. It says
// when it begins and how it ended in lines that tests/soak reads:
//
//   soak rank=2 pid=4711 loops
//   soak rank=2 code=peer_lost peer=1 began_ns=81234 failed_ns=81934 calls=5120 text=all_reduce #31 (...):
//   ... soak rank=2 unharmed
//
// Times are CLOCK_MONOTONIC, from before the call that failed to after its error.
#pragma once

#include <string>

#include "lockstep/group/group.h"

namespace probe {

/// SOAK_SEED in the environment chooses the sequence of calls, of all kinds or of the one named `only`. With
/// SOAK_STAYS=1 it fills new memory after the failure, waits for a line on stdin, and looks whether anybody
/// wrote there, or into results from before the failure. Returns the exit code: 1 after a lockstep::Error, 3
/// where memory was harmed. Throws WrongResult.
int loop(const lockstep::Group& group, const std::string& only);

}  // namespace probe
