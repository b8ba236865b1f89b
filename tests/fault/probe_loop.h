// What script/soak kills: collectives one after the other, for ever, each checked, until one fails. It says
// when it begins and how it ended in lines that tests/soak reads:
//
//   soak rank=2 pid=4711 loops
//   soak rank=2 code=peer_lost peer=1 began_ns=81234 failed_ns=81934 calls=5120 text=all_reduce #31 (...):
//   ... soak rank=2 unharmed
//
// Times are CLOCK_MONOTONIC, from before the call that failed to after its error.
#pragma once

#include <cstdint>

#include "lockstep/group/group.h"

namespace probe {

struct LoopOptions {
  std::uint64_t seed = 0;  ///< of the sequence of calls; the same on all ranks
  /// After the failure: fills new memory, waits for a line on stdin, and looks whether anybody wrote there or
  /// into results from before the failure.
  bool stays = false;
};

/// Returns the exit code: 1 after a failure that was an lockstep::Error, 3 where memory was harmed.
/// Throws WrongResult.
int loop(const lockstep::Group& group, const LoopOptions& options);

}  // namespace probe
