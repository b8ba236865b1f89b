#include "lockstep/base/write.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <ctime>

namespace lockstep {
namespace {

class WithoutSizeSignal {
 public:
  WithoutSizeSignal() {
    ::sigemptyset(&signal_);
    ::sigaddset(&signal_, SIGXFSZ);
    ::pthread_sigmask(SIG_BLOCK, &signal_, &before_);
  }
  ~WithoutSizeSignal() {
    const timespec now{};
    if (::sigismember(&before_, SIGXFSZ) == 0) (void)::sigtimedwait(&signal_, nullptr, &now);
    ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  WithoutSizeSignal(const WithoutSizeSignal&) = delete;
  WithoutSizeSignal& operator=(const WithoutSizeSignal&) = delete;

 private:
  sigset_t signal_{};
  sigset_t before_{};
};

}  // namespace

int write_all(int fd, std::span<const std::byte> bytes) {
  const WithoutSizeSignal guard;
  while (!bytes.empty()) {
    const auto written = ::write(fd, bytes.data(), std::min(bytes.size(), std::size_t{1} << 30));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return errno;
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
  return 0;
}

}  // namespace lockstep
