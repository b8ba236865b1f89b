// What a schedule's places and elements are in one call, and what a message is.
#pragma once

#include "lockstep/backend/backend.h"
#include "lockstep/execute/arrivals.h"
#include "lockstep/execute/execution.h"
#include "lockstep/execute/mailbox.h"

namespace lockstep {

/// The user's buffers of this rank, `rank` of `ranks`, and what is done with their elements.
void bind_call(Bindings& bindings, const Request& request, const Signature& signature, int rank, int ranks);

/// Of these only the buffers, where the call is the last one's again.
void bind_buffers(Bindings& bindings, const Request& request, int rank);

/// Where the slots of all ranks lie in work `number`.
void bind_slots(Bindings& bindings, const Arrivals& arrivals, std::uint64_t number, const Plan& plan,
                int ranks);

/// `number`: of this rank's messages of that direction with that peer.
Outgoing outgoing(const Request& request, std::uint64_t number);
Incoming incoming(const Request& request, std::uint64_t number);

}  // namespace lockstep
