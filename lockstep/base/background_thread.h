// A thread of the library's own: it takes no signals, which are the program's business, and it is joined by
// its owner, but for the copy of its owner in a forked process, where it does not exist.
#pragma once

#include <unistd.h>

#include <memory>
#include <thread>
#include <utility>

#include "lockstep/base/start_thread.h"

namespace lockstep {

class BackgroundThread {
 public:
  /// `name` has at most 15 characters. Throws Error{system}.
  template <class Function>
  BackgroundThread(const char* name, Function run)
      : process_(::getpid()), thread_(std::make_unique<std::thread>(start_thread(name, std::move(run)))) {}
  ~BackgroundThread() {
    if (runs_here()) {
      thread_->join();
    } else {
      (void)thread_.release();
    }
  }
  BackgroundThread(const BackgroundThread&) = delete;
  BackgroundThread& operator=(const BackgroundThread&) = delete;

  /// False in a process that was forked from the thread's: what the two share must be left alone there.
  bool runs_here() const { return process_ == ::getpid(); }

 private:
  pid_t process_;
  std::unique_ptr<std::thread> thread_;
};

}  // namespace lockstep
