#include "mpitrace/table.h"

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

constexpr std::size_t most_bytes = threads_at + most_threads * thread_bytes;

/// A file of a rank that is gone is replaced; beside one that another process has, a name of our own is taken.
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
  if (fd >= 0) ::flock(fd, LOCK_EX | LOCK_NB);  // until we end: see rescue.h
  return fd;
}

std::byte* map(int fd) {
  const int flags = fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
  void* const data = ::mmap(nullptr, most_bytes, PROT_READ | PROT_WRITE, flags | MAP_NORESERVE, fd, 0);
  return data == MAP_FAILED ? nullptr : static_cast<std::byte*>(data);
}

}  // namespace

Table* Table::create(const std::string& wanted, bool has_sites, std::string& problem) {
  std::string path = wanted;
  int fd = path.empty() ? -1 : make_file(path);
  if (fd < 0 && !path.empty()) problem = path + ": " + std::strerror(errno);
  std::byte* data = map(fd);
  if (data == nullptr) {
    problem = std::string("no memory for the profile: ") + std::strerror(errno);
    if (fd >= 0) ::unlink(path.c_str());
    if (fd >= 0) ::close(fd);
    return nullptr;
  }
  auto* const table = new Table(data, fd, fd < 0 ? "" : path);
  const bool is_there = table->reserve(0, page_bytes) && table->reserve(threads_at, thread_bytes) &&
                        (!has_sites || table->reserve(modules_at, threads_at - modules_at));
  if (!is_there) {  // a full disk: a page that cannot be there would end the program
    problem = path + ": " + std::strerror(errno);
    table->remove_file();
    table->forget();
    delete table;
    return create("", has_sites, problem);
  }
  return table;
}

bool Table::reserve(std::size_t offset, std::size_t bytes) const {
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

Sums* Table::join() {
  const std::lock_guard lock(mutex_);
  if (!free_.empty()) {
    Sums* const sums = free_.back();
    free_.pop_back();
    return sums;
  }
  const std::size_t at = size();
  is_full_ = is_full_ || header().threads == most_threads || !reserve(at, thread_bytes);
  if (is_full_) return nullptr;
  ++header().threads;
  return reinterpret_cast<Sums*>(data_ + at);
}

void Table::leave(Sums* sums) {
  const std::lock_guard lock(mutex_);
  free_.push_back(sums);
}

void Table::remove_file() {
  if (fd_ < 0) return;
  ::unlink(path_.c_str());
  ::close(fd_);
  fd_ = -1;
}

void Table::forget() {
  if (data_ != nullptr) ::munmap(std::exchange(data_, nullptr), most_bytes);
  if (fd_ >= 0) ::close(std::exchange(fd_, -1));
}

}  // namespace lockstep::mpitrace
