// Before ranks can connect, all of them have to be there and to agree who they are. Whatever is wrong, one of
// them finds it out first; here all that came hear of it, in the same words, instead of waiting for ranks
// that have given up.
#pragma once

#include <string>
#include <vector>

#include "lockstep/base/deadline.h"
#include "lockstep/base/error.h"
#include "lockstep/group/identity.h"
#include "lockstep/rendezvous/store.h"

namespace lockstep {

/// Leaves `hint` (one line) for the others, and returns everybody's by rank, when all have arrived.
/// Throws Error, the same on all ranks that are there: timeout (which ranks never came), invalid_argument
/// (two processes with one rank, different world sizes); and peer_lost when the store goes.
std::vector<std::string> meet(Store& store, const Identity& identity, const std::string& hint,
                              Deadline deadline);

/// From outside: the rank that `absent` names will not come. All that are there, or come later, throw `absent`, unless all had met
/// already.
void call_off_without(Store& world, const Error& absent);

}  // namespace lockstep
