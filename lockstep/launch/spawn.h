// Starting a rank. Between fork and exec everything has to be set that the kernel then guarantees: the rank
// dies with whoever started it, has its own process group (a signal reaches its whole family, and its `kill
// 0` nobody else), runs on its cores, and inherits no descriptor but those it should.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <array>
#include <string>
#include <vector>

#include "lockstep/base/error.h"

namespace lockstep::launch {

struct SpawnOptions {
  std::string path = {};
  std::vector<std::string> arguments = {};    ///< with the program's name first
  std::vector<std::string> environment = {};  ///< "NAME=value" each
  std::array<int, 3> standard = {0, 1, 2};    ///< what becomes its stdin, stdout and stderr
  std::vector<int> inherited = {};  ///< open in the program under the same numbers, which are above 2
  std::vector<int> cores = {};      ///< pinned to these; empty: not pinned
  sigset_t signal_mask = {};        ///< blocked in the program
};

/// The program exists, but the system cannot execute it. Error{system} with the reason, for the user.
class CannotExecute : public Error {
 public:
  explicit CannotExecute(const std::string& reason) : Error(ErrorCode::system, reason) {}
};

/// Returns when the program has begun. Throws CannotExecute or Error{system}. The calling thread has
/// to outlive the program, which the kernel kills when that thread is gone.
pid_t spawn(const SpawnOptions& options);

}  // namespace lockstep::launch
