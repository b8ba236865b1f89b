// Starting a rank: a program, or a function of this one. Before either begins everything has to be set that
// the kernel then guarantees: the rank dies with whoever started it, has its own process group (a signal
// reaches its whole family, and its `kill 0` nobody else), runs on its cores, and inherits no descriptor but
// those it should.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <array>
#include <functional>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/launch/environment.h"

namespace lockstep::launch {

struct ChildOptions {
  Variables environment = {};               ///< beside what is inherited, or in its place
  std::string folder = {};                  ///< that it begins in; empty: this process's
  std::array<int, 3> standard = {0, 1, 2};  ///< what becomes its stdin, stdout and stderr
  std::vector<int> inherited = {};          ///< open in it under the same numbers; all others above 2 are not
  std::vector<int> cores = {};              ///< pinned to these; empty: not pinned
  sigset_t signal_mask = {};                ///< blocked in it
};

/// The program exists, but the system cannot execute it. Error{system} with the reason, for the user.
class CannotExecute : public Error {
 public:
  explicit CannotExecute(const std::string& reason) : Error(ErrorCode::system, reason) {}
};

/// Returns when the program at `path` has begun; `arguments` start with its name. Throws CannotExecute or
/// Error{system}. The calling thread has to outlive the program, which the kernel kills when that thread is
/// gone.
pid_t start_program(const std::string& path, const std::vector<std::string>& arguments,
                    const ChildOptions& options);

/// The same for a function in a copy of this process, whose exit code is what it returns. REQUIRES: this
/// process has one thread.
pid_t start_function(const std::function<int()>& function, const ChildOptions& options);

}  // namespace lockstep::launch
