// What has to be known before ranks start on this host: which file the program is, and which cores they get.
#pragma once

#include "lockstep/launch/placement.h"
#include "lockstep/launch/program.h"
#include "lockstep/launch/run.h"

namespace lockstep::launch {

/// Throws Error{invalid_argument} for options that cannot work, and inside a rank of another run.
void require_sense(const RunOptions& options);

/// All ranks are this launcher's own children: no agents are needed.
bool is_here(const RunOptions& options);

struct LocalStart {
  std::vector<Program> programs = {};  ///< of each role, if they have any
  Placement placement = {};
};

/// Throws Error{invalid_argument} for a folder that is none, or a wrong SLURM_CPUS_PER_TASK.
LocalStart prepare_here(const RunOptions& options);

}  // namespace lockstep::launch
