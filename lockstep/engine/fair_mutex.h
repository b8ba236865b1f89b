// A mutex that threads get in the order in which they asked for it. A std::mutex may go to the thread that
// has just unlocked it, again and again: one that drives operations would keep all others out.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>

#include "lockstep/base/wait_on.h"

namespace lockstep {

class FairMutex {
 public:
  void lock() {
    std::unique_lock inner(mutex_);
    const std::uint64_t mine = next_++;
    base::wait_on(turn_, inner, [&] { return serving_ == mine; });
  }
  /// Only if nobody has it or waits for it.
  bool try_lock() {
    const std::lock_guard inner(mutex_);
    if (serving_ != next_) return false;
    ++next_;
    return true;
  }
  void unlock() {
    const std::lock_guard inner(mutex_);
    ++serving_;
    if (serving_ != next_) turn_.notify_all();
  }
  /// Whether others wait for it. REQUIRES: locked by the caller.
  bool is_wanted() {
    const std::lock_guard inner(mutex_);
    return next_ - serving_ > 1;
  }

 private:
  std::mutex mutex_;
  std::condition_variable turn_;
  std::uint64_t next_ = 0, serving_ = 0;
};

}  // namespace lockstep
