// Whatever a process makes and drops again and again must not leave anything of it behind. Each of these runs
// `cycles` times after a warm-up, and returns what the process held before and afterwards, for a test to
// read:
//
//   descriptors=9..9 mappings=80..80 memory_kib=1600..1610
#pragma once

#include <string>

#include "lockstep/group/init.h"

namespace probe {

/// Joins the job that `options` say, calls, and leaves. Ranks meet at options.port and, every other time, at
/// `other_port`: a rank that is ahead must not meet one that is about to leave.
std::string cycle_init(lockstep::InitOptions options, int other_port, int cycles);
/// One world of the environment's job after another, left by the end of its last Group and by shutdown() in turns. Says also
/// how long the first init() took, and the median of the last ones, in microseconds: "init_us=900..500".
std::string cycle_worlds(int cycles);
/// A world of three threads.
std::string cycle_threads(int cycles);
/// Subgroups by lists and by colours.
std::string cycle_subgroups(const lockstep::Group& world, int cycles);
/// Buffers of many sizes, in another order of coming and going each time, that calls use.
std::string cycle_buffers(const lockstep::Group& world, int cycles);
/// Groups that are closed by a mismatch.
std::string cycle_failures(const lockstep::Group& world, int cycles);

}  // namespace probe
