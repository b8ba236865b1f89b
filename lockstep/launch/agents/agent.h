// What `lockstep agent` does, which `lockstep run` starts on each host of a job by a remote shell: looks after the ranks
// there, in the launcher's name. It speaks with the launcher on stdin and stdout; when that ends, it ends all.
#pragma once

namespace lockstep::launch::agents {

/// Returns the exit code: 0, or 1 where the launcher was lost. As run(): takes over signals, and this process becomes the
/// reaper of orphaned descendants.
int run_agent();

}  // namespace lockstep::launch::agents
