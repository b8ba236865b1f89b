// A process that forks after init() has two halves with one rank. The child may run other programs or
// compute, but its groups are closed: this notices, at no cost to a call.
#pragma once

#include <string>

namespace lockstep {

/// Begins to notice forks; any number of calls.
void watch_for_forks();
/// Whether this process was forked from one that watched.
bool is_forked_child();
/// Error{invalid_argument}: `call` was made in such a process.
[[noreturn]] void throw_forked(const std::string& call);

}  // namespace lockstep
