// std::condition_variable::wait() is of GCC 12's libstdc++ since that has a new name for it (GLIBCXX_3.4.30); programs of systems
// with an older one could not load Lockstep. Waiting with a deadline has the name that it always had.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

namespace lockstep::base {

/// As condition.wait(lock, is_over).
template <class Predicate>
void wait_on(std::condition_variable& condition, std::unique_lock<std::mutex>& lock,
             const Predicate& is_over) {
  while (!condition.wait_for(lock, std::chrono::hours(1), is_over)) continue;
}

}  // namespace lockstep::base
