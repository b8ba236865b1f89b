// Calls of MPI that come back when others have made them, too: MPI knows no deadline for them, and no way to leave them.
#pragma once

#include <functional>
#include <string>

#include "lockstep/base/deadline.h"

namespace lockstep::mpi {

/// Makes `call` in a thread of its own, and returns what it returned. At the deadline it throws Error{timeout}, which says that `name`
/// has not come back. MPI keeps the thread then, and the process, whose code MPI may be in, ends without destructors of what is
/// older than the first call: exit handlers that came after it run, and streams are flushed. Errors: system, where there is no
/// room for a thread.
int call_until(const std::string& name, Deadline deadline, std::function<int()> call);

/// Makes `call` in this thread, which MPI may mean to be its own. At the deadline the process ends with `exit_code`, having said
/// on stderr that `name` has not come back. Errors: as call_until().
int call_or_end(const std::string& name, Deadline deadline, int exit_code, const std::function<int()>& call);

}  // namespace lockstep::mpi
