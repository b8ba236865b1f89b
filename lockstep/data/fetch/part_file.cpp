#include "lockstep/data/fetch/part_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <thread>
#include <utility>

#include "lockstep/base/error.h"

namespace lockstep::fetch {
namespace {

constexpr std::chrono::milliseconds between_looks{50};

}  // namespace

PartFile::PartFile(std::filesystem::path path, Deadline deadline, const std::function<void()>& on_wait)
    : path_(std::move(path)) {
  bool has_waited = false;
  while (!take(deadline, has_waited, on_wait)) {
  }
}

/// False: its owner has removed it in the meantime.
bool PartFile::take(Deadline deadline, bool& has_waited, const std::function<void()>& on_wait) {
  fd_.reset(::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_APPEND, 0666));
  if (!fd_) throw_system("cannot open " + path_.string());
  while (::flock(fd_.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno == EINTR) continue;
    if (errno == ENOSYS || errno == EOPNOTSUPP || errno == ENOLCK)
      return true;  // a file system without locks
    if (errno != EWOULDBLOCK) throw_system("cannot lock " + path_.string());
    if (!std::exchange(has_waited, true) && on_wait) on_wait();
    if (deadline.expired()) {
      throw Error(ErrorCode::timeout, "another process still fetches " + path_.string() +
                                          "; wait for its end, or end it, and call this again");
    }
    std::this_thread::sleep_for(between_looks);
  }
  struct stat ours {};
  struct stat there {};
  return ::fstat(fd_.get(), &ours) == 0 && ::lstat(path_.c_str(), &there) == 0 &&
         ours.st_ino == there.st_ino && ours.st_dev == there.st_dev;
}

PartFile::~PartFile() {
  struct stat status {};
  if (fd_ && ::fstat(fd_.get(), &status) == 0 && status.st_size == 0) ::unlink(path_.c_str());
}

std::uint64_t PartFile::size() const {
  struct stat status {};
  if (::fstat(fd_.get(), &status) != 0) throw_system("looking at " + path_.string());
  return static_cast<std::uint64_t>(status.st_size);
}

void PartFile::clear() const {
  if (::ftruncate(fd_.get(), 0) != 0) throw_system("emptying " + path_.string());
}

void PartFile::remove() {
  if (::unlink(path_.c_str()) != 0) throw_system("removing " + path_.string());
  fd_.reset();
}

}  // namespace lockstep::fetch
