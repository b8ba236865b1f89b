// A thread of the library's own: it takes no signals, which are the program's business, and it is joined by
// its owner, but for the copy of its owner in a forked process, where it does not exist.
#pragma once

#include <pthread.h>
#include <unistd.h>

#include <csignal>
#include <memory>
#include <system_error>
#include <thread>
#include <utility>

#include "lockstep/base/error.h"

namespace lockstep {

class BackgroundThread {
 public:
  /// `name` has at most 15 characters. Throws Error{system}.
  template <class Function>
  BackgroundThread(const char* name, Function run) : process_(::getpid()) {
    sigset_t all;
    sigset_t before;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before);  // the new thread inherits it
    int failure = 0;
    try {
      thread_ = std::make_unique<std::thread>([name, run = std::move(run)] {
        (void)::pthread_setname_np(::pthread_self(), name);
        run();
      });
    } catch (const std::system_error& error) {
      failure = error.code().value();
    }
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
    if (!thread_) throw_system(std::string("starting thread ") + name, failure);
  }
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
