#include "lockstep/backend/mpi/blocking_calls.h"

#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/start_thread.h"

namespace lockstep::mpi {
namespace {

std::atomic<bool> has_kept_a_thread = false;

std::string not_back(const std::string& name) {
  return name +
         " has not come back by the deadline (InitOptions::arrival_timeout, LOCKSTEP_INIT_TIMEOUT): "
         "a rank does not make this call, or is stopped, or the network between the hosts carries nothing";
}

/// What a call returned, handed from one thread to another. Whoever is last lets go of it.
class Result {
 public:
  void set(int value) {
    const std::lock_guard lock(mutex_);
    value_ = value;
    has_come_.notify_all();
  }
  std::optional<int> await_until(Deadline::Clock::time_point when) {
    std::unique_lock lock(mutex_);
    has_come_.wait_until(lock, when, [this] { return value_.has_value(); });
    return value_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable has_come_;
  std::optional<int> value_;
};

[[noreturn]] void end_now(int exit_code) {
  (void)std::fflush(nullptr);
  ::_exit(exit_code);
}

/// Static objects of MPI may not be destroyed under a thread that is in it.
void leave_mpi_alone_at_exit() {
  static const int registered = ::on_exit(
      [](int exit_code, void*) {
        if (has_kept_a_thread) end_now(exit_code);
      },
      nullptr);
  (void)registered;
}

}  // namespace

int call_until(const std::string& name, Deadline deadline, std::function<int()> call) {
  leave_mpi_alone_at_exit();
  const auto result = std::make_shared<Result>();
  start_thread("lockstep-mpi", [result, call = std::move(call)] { result->set(call()); }).detach();
  if (const auto value = result->await_until(deadline.when())) return *value;
  has_kept_a_thread = true;
  throw Error(ErrorCode::timeout, not_back(name));
}

int call_or_end(const std::string& name, Deadline deadline, int exit_code, const std::function<int()>& call) {
  Result result;
  const auto watch = start_thread<std::jthread>("lockstep-mpi", [&](const std::stop_token&) {
    if (result.await_until(deadline.when())) return;
    const std::string said =
        "lockstep: " + not_back(name) + "; this process ends, since MPI cannot be left\n";
    (void)std::fputs(said.c_str(), stderr);  // at the process' end there may be no log any more
    end_now(exit_code);
  });
  const int value = call();
  result.set(value);
  return value;
}

}  // namespace lockstep::mpi
