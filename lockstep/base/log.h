// The library's own words: warnings and notices on stderr, one line each, beginning "lockstep[rank]:".
// LOCKSTEP_LOG (off, error, warning, info, debug; default warning) sets what is said.
#pragma once

#include <string>

namespace lockstep::log {

/// Throws Error{invalid_argument} if LOCKSTEP_LOG is none of these, which is "warning" to the calls below:
/// they never throw.
void require_known_level();

/// Shown in the prefix from now on; -1 before the rank is known. Per thread, because ranks may be threads.
void set_rank(int rank);

void debug(const std::string& message);
void info(const std::string& message);
void warning(const std::string& message);
void error(const std::string& message);

}  // namespace lockstep::log
