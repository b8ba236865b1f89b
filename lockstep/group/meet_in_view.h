// How the ranks of a view come together, or find that there is a newer one: either all of them or none.
#pragma once

#include <cstdint>
#include <functional>

#include "lockstep/base/deadline.h"
#include "lockstep/rendezvous/store.h"
#include "lockstep/rendezvous/view.h"

namespace lockstep {

/// All members of `view` come together at `store`, of which they have this part to themselves; this one is `self`. False, for all
/// that come: there was a view after it before all had come. `newest`: the number of the newest view, as far as this rank knows.
/// Throws Error{timeout}, naming who has not come, on all that have.
bool meet_in_view(Store& store, const View& view, const Life& self,
                  const std::function<std::uint64_t()>& newest, Deadline deadline);

}  // namespace lockstep
