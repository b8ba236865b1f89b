// What a schedule's places and elements are in one call.
#pragma once

#include "lockstep/backend/backend.h"
#include "lockstep/execute/arrivals.h"
#include "lockstep/execute/execution.h"

namespace lockstep {

/// The user's buffers of this rank, `rank` of `ranks`, and what is done with their elements.
void bind_call(Bindings& bindings, const Request& request, const Signature& signature, int rank, int ranks);

/// Where the slots of all ranks lie in work `number`.
void bind_slots(Bindings& bindings, const Arrivals& arrivals, std::uint64_t number, const Plan& plan,
                int ranks);

}  // namespace lockstep
