// What a program says that the soaks hurt: see job.py, which reads it.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <iostream>
#include <string>

#include "lockstep/base/env.h"
#include "lockstep/base/error.h"
#include "lockstep/group/group.h"

namespace soak {

inline std::int64_t now_ns() {
  return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// In one write, so that lines of several ranks on one pipe stay whole.
inline void say(const lockstep::Group& group, const std::string& text) {
  const std::string line = "soak rank=" + std::to_string(group.rank()) + " " + text + "\n";
  (void)!::write(STDOUT_FILENO, line.data(), line.size());
}

/// Calls `once` until it fails, and says what happened; with SOAK_STAYS=1 it then takes `memory`, waits for a
/// line, and says whether `is_whole` finds it as it was. Returns the exit code.
inline int loop_until_hurt(const lockstep::Group& group, const std::function<void()>& once,
                           const std::function<void()>& take_memory, const std::function<bool()>& is_whole) {
  std::uint64_t calls = 0;
  std::int64_t began = now_ns();
  say(group, "pid=" + std::to_string(::getpid()) + " loops");
  try {
    for (;; ++calls) {
      began = now_ns();
      once();
    }
  } catch (const lockstep::Error& error) {
    const std::int64_t failed = now_ns();
    std::string text = error.what();
    std::replace(text.begin(), text.end(), '\n', ' ');
    say(group, "code=" + std::string(to_string(error.code())) +
                   " peer=" + std::to_string(error.peer().value_or(-1)) +
                   " began_ns=" + std::to_string(began) + " failed_ns=" + std::to_string(failed) +
                   " calls=" + std::to_string(calls) + " text=" + text);
  }
  if (!lockstep::env::flag("SOAK_STAYS").value_or(false)) return 1;
  take_memory();
  std::string line;
  std::getline(std::cin, line);
  const bool whole = is_whole();
  say(group, whole ? "unharmed" : "harmed: somebody wrote into memory after the failure");
  return whole ? 1 : 3;
}

}  // namespace soak
