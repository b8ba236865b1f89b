// What `lockstep run` would do, for a user who wants to look before it does.
#pragma once

#include <string>

#include "lockstep/launch/run.h"

namespace lockstep::launch {

struct DryRun {
  std::string text = {};  ///< lines for the user
  int exit_code = 0;      ///< what run() would give for a program that cannot run here; else 0
};

/// Starts nothing, and asks no other host. Throws Error{invalid_argument} as run() would give 2.
DryRun dry_run(const RunOptions& options);

}  // namespace lockstep::launch
