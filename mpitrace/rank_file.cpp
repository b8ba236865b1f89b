#include "mpitrace/rank_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace lockstep::mpitrace {
namespace {

int make_file(std::string& path) {
  constexpr int flags = O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC;
  int fd = ::open(path.c_str(), flags, 0644);
  if (fd < 0 && errno == EEXIST) {
    const int old = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
    if (old >= 0 && ::flock(old, LOCK_EX | LOCK_NB) == 0) {
      ::unlink(path.c_str());
    } else {
      path += "." + std::to_string(::getpid());
    }
    if (old >= 0) ::close(old);
    fd = ::open(path.c_str(), flags, 0644);
  }
  if (fd >= 0) ::flock(fd, LOCK_EX | LOCK_NB);  // until we end
  return fd;
}

}  // namespace

std::optional<RankFile> RankFile::create(const std::string& wanted, std::size_t most_bytes,
                                         std::string& problem) {
  std::string path = wanted;
  const int fd = path.empty() ? -1 : make_file(path);
  if (fd < 0 && !path.empty()) problem = path + ": " + std::strerror(errno);
  const int flags = fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
  void* const data = ::mmap(nullptr, most_bytes, PROT_READ | PROT_WRITE, flags | MAP_NORESERVE, fd, 0);
  if (data == MAP_FAILED) {
    problem = std::string("no memory for the profile: ") + std::strerror(errno);
    if (fd >= 0) ::unlink(path.c_str());
    if (fd >= 0) ::close(fd);
    return std::nullopt;
  }
  return RankFile(static_cast<std::byte*>(data), most_bytes, fd, fd < 0 ? "" : path);
}

bool RankFile::reserve(std::size_t offset, std::size_t bytes) const {
  if (fd_ < 0) return true;
  rlimit limit{};
  if (::getrlimit(RLIMIT_FSIZE, &limit) == 0 && offset + bytes > limit.rlim_cur) {
    errno = EFBIG;  // the system's answer would be a SIGXFSZ
    return false;
  }
  const int failed = ::posix_fallocate(fd_, static_cast<off_t>(offset), static_cast<off_t>(bytes));
  errno = failed;
  return failed == 0;
}

void RankFile::remove_file() {
  if (fd_ < 0) return;
  ::unlink(path_.c_str());
  ::close(std::exchange(fd_, -1));
}

void RankFile::forget() {
  if (data_ != nullptr) ::munmap(std::exchange(data_, nullptr), most_bytes_);
  if (fd_ >= 0) ::close(std::exchange(fd_, -1));
}

}  // namespace lockstep::mpitrace
