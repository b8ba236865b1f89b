// Whatever happens to the process that runs a job, nothing of the job may survive it. So there are two: a
// guard that does next to nothing, and under it the job. Orphans of the job become the guard's children,
// which it ends; and the job finds out at once when the guard is gone.
#pragma once

#include <signal.h>

#include <chrono>
#include <functional>

#include "lockstep/base/unique_fd.h"

namespace lockstep::launch {

/// What the job gets from its guard.
struct GuardLine {
  UniqueFd orders =
      {};  ///< a byte for each signal that the guard got: its number. The end: the guard is gone.
  /// Calls `take` with each signal that has come since the last time. False: the guard is gone.
  bool take_orders(const std::function<void(int signal)>& take) const;

  sigset_t signal_mask =
      {};  ///< as it was before the guard blocked what it takes over: what programs should have
};

/// What the job has to end by itself after a signal that tells it to, before the guard kills it.
struct GuardLimits {
  std::chrono::milliseconds stopped = {};
  std::chrono::milliseconds hurried = {};  ///< from the second Ctrl-C on
  /// Where its other side is gone the job has to end as if it were told to; -1: there is none.
  int lifeline = -1;
  const char* job = "the launcher";  ///< how messages call it
};

/// Runs `job` in a child process, passes signals on to it as bytes, ends what is left of it, and returns its
/// exit code (128 + signal, after a line on stderr, if it was killed). A job that was stopped (SIGSTOP)
/// continues when it is told to end. In the child all signals that the guard takes over are blocked, and
/// SIGPIPE and SIGXFSZ are ignored. See run() for what this does to the calling process.
int run_guarded(const std::function<int(GuardLine)>& job, const GuardLimits& limits);

}  // namespace lockstep::launch
