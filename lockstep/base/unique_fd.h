// A file descriptor with one owner: closed when the owner goes, never twice.
#pragma once

#include <unistd.h>

#include <utility>

namespace lockstep {

class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept
      : fd_(std::exchange(other.fd_, -1)), kept_(std::exchange(other.kept_, false)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    if (this != &other) {
      reset();
      fd_ = std::exchange(other.fd_, -1);
      kept_ = std::exchange(other.kept_, false);
    }
    return *this;
  }
  UniqueFd(const UniqueFd&) = delete;
  UniqueFd& operator=(const UniqueFd&) = delete;
  ~UniqueFd() { reset(); }

  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  int release() {
    if (kept_) forget();
    return std::exchange(fd_, -1);
  }
  void reset(int fd = -1) {
    if (kept_) forget();
    if (fd_ >= 0) ::close(fd_);
    fd_ = fd;
  }

  /// From now on fork() leaves the open file with the parent alone: in the child the number means /dev/null.
  /// Else a child that lives on would keep the parent's connections open, and nobody would notice that the
  /// parent is gone. (exec needs nothing of the kind: see O_CLOEXEC.) Numbers of 65536 and more stay as they
  /// are.
  void keep_from_children();

 private:
  void forget();

  int fd_ = -1;
  bool kept_ = false;  // from children
};

}  // namespace lockstep
