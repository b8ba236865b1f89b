// What the machine at hand can do at best, for `lockstep bench --machine` and `lockstep doctor`: measured without Lockstep's
// collectives, so that these can be held against it.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

#include "lockstep/group/group.h"
#include "lockstep/view/profile/machine_limits.h"

namespace measure {

/// Bytes a second that a = b + s * c moves in this thread, counting what is read and written. `bytes`: of each array.
double triad(std::uint64_t bytes, std::chrono::nanoseconds at_least);

/// Memory by the number of cores, pushes into arenas and links, each the median of `passes`. Collective, and the same on all
/// ranks. `say` is told what was measured. Takes 256 MiB of memory a rank.
lockstep::view::MachineLimits measure_machine(const lockstep::Group& world, int passes,
                                              const std::function<void(const std::string&)>& say);

}  // namespace measure
