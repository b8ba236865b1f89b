#include "lockstep/base/start_thread.h"

#include <fmt/core.h>
#include <pthread.h>
#include <sys/resource.h>

#include <string>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

std::string limit_of(__rlimit_resource resource, rlim_t unit) {
  rlimit limit{};
  if (::getrlimit(resource, &limit) != 0) return "unknown";
  return limit.rlim_cur == RLIM_INFINITY ? "unlimited" : std::to_string(limit.rlim_cur / unit);
}

}  // namespace

AllSignalsBlocked::AllSignalsBlocked() {
  sigset_t all;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before_);
}

AllSignalsBlocked::~AllSignalsBlocked() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

void throw_no_thread(const char* name, int error_number) {
  constexpr rlim_t kibibyte = 1024;
  throw Error(
      ErrorCode::system,
      fmt::format("starting the thread {}: {}; ulimit -u is {}, ulimit -v {}: raise what is too low (a "
                  "container has a limit on processes and threads of its own), or start fewer ranks",
                  name, std::generic_category().message(error_number), limit_of(RLIMIT_NPROC, 1),
                  limit_of(RLIMIT_AS, kibibyte)));
}

void set_thread_name(const char* name) { (void)::pthread_setname_np(::pthread_self(), name); }

}  // namespace lockstep
