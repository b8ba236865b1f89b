// Many ranks come to the limits that the system sets its users. errno's text does not say that there is one
// to raise, nor how.
#pragma once

#include <string>

namespace lockstep::launch {

/// "; ulimit -n is 1024: raise it, ...", to follow errno's text; empty for an error that is no such limit's.
std::string limit_hint(int error_number);

/// Throws Error{system} for a call that the system refused: what, why, and that hint. `error_number` 0 means:
/// use errno.
[[noreturn]] void throw_refused(const std::string& what, int error_number = 0);

}  // namespace lockstep::launch
