// What `lockstep agent` does, which `lockstep run` starts on each host of a job by a remote shell: looks after the ranks
// there, in the launcher's name. It speaks with the launcher on stdin and stdout; when that ends, it ends all.
#pragma once

#include <optional>

#include "lockstep/launch/agents/message_pipe.h"
#include "lockstep/launch/agents/wire.h"
#include "lockstep/launch/guard.h"
#include "lockstep/launch/run.h"

namespace lockstep::launch::agents {

struct AgentEnd {
  bool is_done = false;  ///< the launcher has heard the end of all ranks
  int stopped_by = 0;    ///< a signal, or 0
  std::optional<Conclusion> conclusion =
      {};  ///< how the job came out, where `own` was given and the launcher has said it
};

/// Does what the launcher behind `pipe` says, until all is done or that is lost; no rank is left then. `own`: of a launcher
/// with a program and a terminal of its own; nullptr: the other one has all that.
AgentEnd serve_launcher(GuardLine& guard, MessagePipe pipe, const RunOptions* own);

/// `lockstep agent`. Returns the exit code: 0, or 1 where the launcher was lost. As run(): takes over signals, and this process
/// becomes the reaper of orphaned descendants.
int run_agent();

}  // namespace lockstep::launch::agents
