// What a launcher does that does not lead, of several that were started by somebody else (NodeOptions): comes to the one that
// leads, and is an agent of it, with its own program and its own terminal.
#pragma once

#include "lockstep/launch/guard.h"
#include "lockstep/launch/run.h"

namespace lockstep::launch::agents {

/// Returns the job's exit code, which the leader says; comes again where all ranks start again. Throws CannotGather where that
/// one was lost or we were told to end; Error: no one leads there in time, it does not know the secret, or it leads another run.
/// REQUIRES: options.nodes, with a secret.
int follow(const RunOptions& options, GuardLine& guard);

/// Whether somebody listens where launchers meet.
bool someone_leads(const RunOptions& options);

}  // namespace lockstep::launch::agents
