// Whether anything could still be called while a thread waits.
#pragma once

namespace lockstep {

/// Whether this process has one thread, beside those of Lockstep that call nothing of their own. Costs system
/// calls; false where the system does not say.
bool is_only_thread();

}  // namespace lockstep
