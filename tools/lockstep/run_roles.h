// The roles of a job on the command line of `lockstep run`: who does what, and whose death means what.
#pragma once

#include <string>
#include <vector>

#include "lockstep/launch/run.h"
#include "run_flags.h"

/// Splits the words after the options at each ":", where --role NAME:RANKS was given: what follows is another role's
/// [--role NAME:RANKS] program. Takes the roles into `flags.roles`; without such roles there is one command.
/// Throws Error{invalid_argument}.
std::vector<std::vector<std::string>> split_commands(RunFlags& flags, const std::vector<std::string>& words);

/// How many ranks --role says; 0: it does not.
int ranks_of_roles(const RunFlags& flags);

/// Takes --role, --tolerate, --restart, --min-np and --max-restarts into `options`, whose ranks are known. `commands`: as
/// split_commands() returned them. Throws Error{invalid_argument}.
void choose_roles(const RunFlags& flags, const std::vector<std::vector<std::string>>& commands,
                  lockstep::launch::RunOptions& options);
