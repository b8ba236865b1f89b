// What the kernel says of a process.
#pragma once

#include <sys/types.h>

#include <cstdint>
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

/// What a process uses of the machine now; zeros of one that is gone, or where there is no /proc.
struct ProcessUse {
  std::uint64_t resident_bytes = 0;
  std::uint64_t user_ns = 0;  ///< so far, as all its threads; in steps of 10 ms as a rule
  std::uint64_t system_ns = 0;
};
ProcessUse read_use(pid_t pid);

/// The numbers among the names in a folder of /proc: processes in /proc, threads in /proc/PID/task,
/// descriptors in /proc/PID/fd (of this process also the one that reads them). As far as they can be read.
std::vector<int> numbers_in(const std::string& folder);

/// Of the threads of this process that live: how long they were on a core, and how long ready to run without one. Zeros where
/// the kernel does not say.
struct CoreTimes {
  std::uint64_t on_core_ns = 0, waited_ns = 0;
};
CoreTimes own_core_times();

}  // namespace lockstep::base
