// Where the ranks of `lockstep run` go: which of the ways to say it was used, and what it comes to.
#pragma once

#include "lockstep/launch/run.h"
#include "run_flags.h"

/// Sets ranks, hosts, nodes, and what of `remote` depends on them. Throws Error{invalid_argument} where nothing, too much or
/// nonsense is said.
void choose_hosts(const RunFlags& flags, lockstep::launch::RunOptions& options);

/// A duration of at most a day, "off" being that. Throws Error{invalid_argument} that begins with `option`.
std::chrono::milliseconds milliseconds_of(const std::string& option, const std::string& text);
