#include "lockstep/transport/ring/presence.h"

#include <fcntl.h>
#include <unistd.h>

#include <utility>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

struct flock byte_lock(short type, int local_rank) {
  struct flock lock {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = local_rank;
  lock.l_len = 1;
  return lock;
}

}  // namespace

std::function<bool(int)> watch_presence(std::shared_ptr<HostRegion> region, int local_rank) {
  struct flock mark = byte_lock(F_WRLCK, local_rank);
  if (::fcntl(region->fd(), F_SETLK, &mark) != 0) throw_system("marking this process as present");
  region->progress(local_rank).pid.store(::getpid());
  return [region = std::move(region)](int other) {
    struct flock question = byte_lock(F_WRLCK, other);
    if (::fcntl(region->fd(), F_GETLK, &question) != 0) return true;  // cannot tell
    return question.l_type != F_UNLCK;
  };
}

}  // namespace lockstep
