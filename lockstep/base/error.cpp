#include "lockstep/base/error.h"

#include <fmt/core.h>
#include <sys/resource.h>

#include <cerrno>
#include <system_error>

namespace lockstep {

std::string_view to_string(ErrorCode code) {
  switch (code) {
    case ErrorCode::invalid_argument: return "invalid_argument";
    case ErrorCode::timeout: return "timeout";
    case ErrorCode::peer_lost: return "peer_lost";
    case ErrorCode::mismatch: return "mismatch";
    case ErrorCode::aborted: return "aborted";
    case ErrorCode::unsupported: return "unsupported";
    case ErrorCode::corrupt_data: return "corrupt_data";
    case ErrorCode::system: return "system";
  }
  return "unknown";
}

Error::Error(ErrorCode code, const std::string& message, std::optional<int> peer)
    : std::runtime_error(message), code_(code), peer_(peer) {}

std::string open_files_hint() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return {};
  return fmt::format("; ulimit -n is {}: raise it", limit.rlim_cur);
}

void throw_invalid_argument(const std::string& message) { throw Error(ErrorCode::invalid_argument, message); }

void throw_system(const std::string& what, int error_number) {
  const int number = error_number != 0 ? error_number : errno;
  throw Error(ErrorCode::system, what + ": " + std::generic_category().message(number) +
                                     (number == EMFILE ? open_files_hint() : ""));
}

}  // namespace lockstep
