#include "lockstep/launch/limits.h"

#include <sys/resource.h>

#include <cerrno>
#include <system_error>

#include "lockstep/base/error.h"

namespace lockstep::launch {
namespace {

std::string most_processes() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NPROC, &limit) != 0) return "unknown";
  return limit.rlim_cur == RLIM_INFINITY ? "unlimited" : std::to_string(limit.rlim_cur);
}

}  // namespace

std::string limit_hint(int error_number) {
  if (error_number == EMFILE) return open_files_hint() + ", or start fewer ranks";
  if (error_number == EAGAIN) {
    return "; ulimit -u is " + most_processes() +
           ": raise it (and a container's own limit on processes), or start fewer ranks";
  }
  return {};
}

void throw_refused(const std::string& what, int error_number) {
  const int number = error_number != 0 ? error_number : errno;
  throw Error(ErrorCode::system, what + ": " + std::generic_category().message(number) + limit_hint(number));
}

}  // namespace lockstep::launch
