// Where there is no room for a thread the standard library throws an error that is none of ours and names
// neither the thread nor a limit. So the library's threads all start here; signals, which are the program's
// business, are left to its own.
#pragma once

#include <csignal>
#include <system_error>
#include <thread>
#include <utility>

namespace lockstep {

/// Blocks all signals in this thread while it lives; a thread that is started then has them blocked, too.
class AllSignalsBlocked {
 public:
  AllSignalsBlocked();
  ~AllSignalsBlocked();
  AllSignalsBlocked(const AllSignalsBlocked&) = delete;
  AllSignalsBlocked& operator=(const AllSignalsBlocked&) = delete;

 private:
  sigset_t before_{};
};

/// Throws Error{system}: thread `name` could not be started, with the limits and what to do.
[[noreturn]] void throw_no_thread(const char* name, int error_number);

/// Of this thread, for tools that list threads. At most 15 characters.
void set_thread_name(const char* name);

/// A std::thread or std::jthread that runs `run` and is called `name` (at most 15 characters).
/// Errors: system if the system has no room for one.
template <class Thread = std::thread, class Function>
Thread start_thread(const char* name, Function run) {
  const AllSignalsBlocked inherited;
  try {
    return Thread([name, run = std::move(run)](auto&&... stop) mutable {
      set_thread_name(name);
      run(std::forward<decltype(stop)>(stop)...);
    });
  } catch (const std::system_error& error) {
    throw_no_thread(name, error.code().value());
  }
}

}  // namespace lockstep
