// Every algorithm there is, one file each. What each costs and when it is chosen stands in docs/algorithms.md
// and select.h.
#pragma once

#include "lockstep/schedule/schedule.h"

namespace lockstep {

// one_shot.cpp: small messages inside a host, through the slots.
Schedule one_shot_all_reduce(const Call& call);
Schedule one_shot_broadcast(const Call& call);
Schedule one_shot_all_gather(const Call& call);

// arena_push.cpp: inside a host, buffers in the arenas.
Schedule arena_push_all_reduce(const Call& call);
Schedule arena_broadcast(const Call& call);
Schedule arena_push_all_gather(const Call& call);

// ring.cpp: large messages over channels.
Schedule ring_all_reduce(const Call& call);
Schedule ring_all_gather(const Call& call);

// binomial_tree.cpp: small messages over channels, and every broadcast over channels.
Schedule tree_all_reduce(const Call& call);
Schedule tree_broadcast(const Call& call);

// point_to_point.cpp: one sender, one receiver.
Schedule point_to_point(const Call& call);

}  // namespace lockstep
