#include "lockstep/base/unique_fd.h"

#include <fcntl.h>
#include <pthread.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace lockstep {
namespace {

constexpr std::size_t most_numbers = 65536;
constexpr std::size_t bits = 64;

// A bit for each number. No lock, which a fork in another thread could leave locked in the child.
constinit std::array<std::atomic<std::uint64_t>, most_numbers / bits> kept{};

// In the child, where only what a signal handler may do is allowed.
void let_go_of_kept() {
  const int nothing = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  for (std::size_t word = 0; word < kept.size(); ++word) {
    const std::uint64_t set = kept[word].load(std::memory_order_relaxed);
    for (std::size_t bit = 0; set >> bit != 0 && bit < bits; ++bit) {
      if ((set >> bit & 1) == 0) continue;
      const int fd = static_cast<int>(word * bits + bit);
      if (nothing < 0 || ::dup3(nothing, fd, O_CLOEXEC) < 0) ::close(fd);
    }
  }
  if (nothing >= 0) ::close(nothing);
}

std::atomic<std::uint64_t>& word_of(int fd) { return kept[static_cast<std::size_t>(fd) / bits]; }
std::uint64_t bit_of(int fd) { return std::uint64_t{1} << static_cast<std::size_t>(fd) % bits; }

}  // namespace

void UniqueFd::keep_from_children() {
  static const int registered = ::pthread_atfork(nullptr, nullptr, let_go_of_kept);
  static_cast<void>(registered);
  if (fd_ < 0 || static_cast<std::size_t>(fd_) >= most_numbers || kept_) return;
  word_of(fd_).fetch_or(bit_of(fd_), std::memory_order_relaxed);
  kept_ = true;
}

void UniqueFd::forget() {
  word_of(fd_).fetch_and(~bit_of(fd_), std::memory_order_relaxed);
  kept_ = false;
}

}  // namespace lockstep
