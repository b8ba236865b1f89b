// What the kernel says of a process.
#pragma once

#include <sys/types.h>

namespace lockstep::launch {

struct ProcessStatus {
  pid_t parent = 0;
  char state = '?';  ///< as in ps: R runs, S sleeps, D sleeps for good, T is stopped, t traced, Z has ended
};

/// '?' of a process that is gone, or where there is no /proc.
ProcessStatus read_status(pid_t pid);

}  // namespace lockstep::launch
