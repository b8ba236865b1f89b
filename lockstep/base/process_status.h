// What the kernel says of a process.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace lockstep::base {

struct ProcessStatus {
  pid_t parent = 0;
  /// As in ps: R runs, S sleeps, D sleeps and hears no signal, T is stopped, t traced, Z has ended.
  char state = '?';
};

/// '?' of a process that is gone, or where there is no /proc.
ProcessStatus read_status(pid_t pid);

/// The numbers among the names in a folder of /proc: processes in /proc, threads in /proc/PID/task,
/// descriptors in /proc/PID/fd (of this process also the one that reads them). As far as they can be read.
std::vector<int> numbers_in(const std::string& folder);

}  // namespace lockstep::base
