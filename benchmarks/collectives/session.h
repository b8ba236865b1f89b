// Ranks that are timed must begin at one moment, and whatever library they measure must meet the same
// conditions. A Session is memory that the driver made and all ranks of a run map: they begin together by its
// barrier, leave their times in it, and find buffers there that all of them share. Knows no library:
// Lockstep's program and its peers' use the same one.
#pragma once

#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>

namespace bench {

inline constexpr int most_ranks = 16;
inline constexpr std::size_t most_repetitions = 4096;
inline constexpr std::size_t huge_page_bytes = std::size_t{2} << 20;

/// Nanoseconds of a clock that all processes of a host share.
inline std::uint64_t now_ns() {
  return static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch() /
                                    std::chrono::nanoseconds(1));
}

inline void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

struct Stamps {
  std::uint64_t begin_ns;
  std::uint64_t end_ns;
};

class Session {
 public:
  /// Maps `path`, of which the first page was zeroed before this run. `crowded`: there are more ranks than
  /// cores, so who waits gives the core away. `buffer_bytes`: size of each shared buffer. Throws
  /// runtime_error.
  Session(const std::string& path, int rank, int ranks, bool crowded, std::size_t buffer_bytes)
      : rank_(rank), ranks_(ranks), crowded_(crowded), stride_((buffer_bytes + 4095) / 4096 * 4096) {
    bytes_ = buffers_begin + static_cast<std::size_t>(ranks) * stride_;
    const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
    if (fd < 0) throw std::runtime_error("cannot open session " + path + ": " + std::strerror(errno));
    struct stat found {};
    void* memory = MAP_FAILED;
    if (::fstat(fd, &found) == 0 && static_cast<std::size_t>(found.st_size) >= bytes_) {
      memory = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    }
    ::close(fd);
    if (memory == MAP_FAILED) {
      throw std::runtime_error("session " + path + " needs " + std::to_string(bytes_) + " bytes, has " +
                               std::to_string(found.st_size));
    }
    base_ = static_cast<std::byte*>(memory);
    // As Lockstep's arenas: huge pages where the system gives them for shared memory.
    static_cast<void>(::madvise(base_ + buffers_begin, bytes_ - buffers_begin, MADV_HUGEPAGE));
  }
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;
  ~Session() { ::munmap(base_, bytes_); }

  int rank() const { return rank_; }
  int ranks() const { return ranks_; }

  /// Returns when all ranks are here.
  void meet() { meet_and_start(0); }

  /// The same, and all return at one time: who came last names a moment a little later, when all have seen
  /// that they are complete. Without it the time that the news takes to spread would be part of each figure.
  void start_together() { meet_and_start(crowded_ ? 0 : 1000); }

  /// What rank 0 decides and all read. REQUIRES: a meet() between writing and reading, and again before
  /// writing.
  bool& flag() { return header().flag; }

  /// When a rank began and ended its call, by now_ns().
  Stamps& stamps(int rank, std::size_t repetition) {
    auto* table = reinterpret_cast<Stamps*>(base_ + sizeof(Header));
    return table[static_cast<std::size_t>(rank) * most_repetitions + repetition];
  }

  /// The shared buffer of a rank, aligned to a page.
  std::byte* buffer(int rank) const {
    return base_ + buffers_begin + static_cast<std::size_t>(rank) * stride_;
  }

 private:
  struct alignas(4096) Header {
    alignas(64) std::atomic<std::uint64_t> arrived;
    alignas(64) std::atomic<std::uint64_t> released;
    std::uint64_t start_ns;
    bool flag;
  };
  static constexpr std::size_t buffers_begin = huge_page_bytes;
  static_assert(sizeof(Header) + most_ranks * most_repetitions * sizeof(Stamps) <= buffers_begin);

  Header& header() const { return *reinterpret_cast<Header*>(base_); }

  void wait_a_moment() const {
    if (crowded_) {
      ::sched_yield();
    } else {
      pause();
    }
  }

  void meet_and_start(std::uint64_t lead_ns) {
    ++round_;
    if (header().arrived.fetch_add(1) + 1 == round_ * static_cast<std::uint64_t>(ranks_)) {
      header().start_ns = now_ns() + lead_ns;
      header().released.store(round_);
    } else {
      while (header().released.load() != round_) wait_a_moment();
    }
    if (lead_ns == 0) return;
    while (now_ns() < header().start_ns) {
    }
  }

  int rank_;
  int ranks_;
  bool crowded_;
  std::size_t stride_;
  std::size_t bytes_ = 0;
  std::byte* base_ = nullptr;
  std::uint64_t round_ = 0;
};

}  // namespace bench
