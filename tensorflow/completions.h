// Works that nobody waits for: TensorFlow wants to be told when an operation is over. A thread looks after those that are not over
// at once.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "lockstep_c.h"

namespace lockstep_tensorflow {

/// Why a work failed whose status this thread has just got; "" where it did not.
std::string why_of(int status);

class Completions {
 public:
  /// Lives until the process ends: TensorFlow's threads may.
  static Completions& of_process();

  /// Calls `over` with the work's status, and why it failed, as soon as it is over: at once, in this thread, where that takes but a moment.
  void add(lockstep_work* work, std::function<void(int status, const std::string& why)> over);

 private:
  struct Pending {
    lockstep_work* work;
    std::function<void(int, const std::string&)> over;
  };
  void run();
  bool look();

  std::atomic<std::chrono::steady_clock::rep> last_added_ = 0;  // when add() was last left
  std::mutex mutex_;
  std::condition_variable added_;
  std::vector<Pending> new_;
  std::vector<Pending> pending_;  // of the thread
  bool is_started_ = false;
};

}  // namespace lockstep_tensorflow
