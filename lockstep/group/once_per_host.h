// Ranks of one host share its disk: what has to be downloaded, unpacked or prepared before training is done
// by one of them, while the others wait, and where it fails no rank goes on without it.
#pragma once

#include <functional>

#include "lockstep/group/group.h"

namespace lockstep {

/// Collective. The lowest rank of the group on each host (local_rank() 0) runs `task`, which calls nothing
/// collective on this group; everybody returns when it is done on all hosts. If it throws, every rank throws
/// one Error with its code and text, and the rank and host where it failed (peer()), the lowest of several;
/// the group is as before. In a group of one it is a call, and its exception goes on as it is.
///
///   lockstep::once_per_host(world, [] { download("cifar-10-binary.tar.gz", "data"); });
///
/// Cost: an all_gather of 8 bytes. The others wait within the group's time-out (LOCKSTEP_TIMEOUT,
/// GroupOptions::timeout), after which they throw Error{timeout}: let it be longer than the task may take.
void once_per_host(const Group& group, const std::function<void()>& task);

}  // namespace lockstep
