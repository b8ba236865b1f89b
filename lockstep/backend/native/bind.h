// Says for one call where the places of its schedule lie and what its elements are; and what a message is.
#pragma once

#include "lockstep/backend/backend.h"
#include "lockstep/execute/arrivals.h"
#include "lockstep/execute/execution.h"
#include "lockstep/execute/mailbox.h"
#include "lockstep/execute/plan.h"

namespace lockstep {

/// The user's buffers of this rank, `rank` of `ranks`, and what is done with their elements.
void bind_call(Bindings& bindings, const Request& request, int rank, int ranks);

/// Only the buffers of these, where a call is the same as the last one.
void bind_buffers(Bindings& bindings, const Request& request, int rank);

/// Where the slots of all ranks lie in work `number`.
void bind_slots(Bindings& bindings, const Arrivals& arrivals, std::uint64_t number, const Plan& plan,
                int ranks);

/// `number`: of this rank's messages of that direction with that peer.
Outgoing outgoing(const Request& request, std::uint64_t number);
Incoming incoming(const Request& request, std::uint64_t number);

}  // namespace lockstep
