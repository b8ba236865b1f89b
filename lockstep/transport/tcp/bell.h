// How the transport's own threads tell the one that waits in poll(2) that a connection is ready.
#pragma once

#include <poll.h>
#include <sys/eventfd.h>

#include <atomic>

#include "lockstep/base/error.h"
#include "lockstep/base/unique_fd.h"

namespace lockstep::tcp {

/// Any thread rings; one listens.
class Bell {
 public:
  Bell() : event_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    if (!event_) throw_system("eventfd");
  }

  /// Call after making visible what there is to see.
  void ring() {
    rung_.store(true, std::memory_order_release);
    (void)::eventfd_write(event_.get(), 1);
  }
  /// Whether it rang since the last call: look at everything then. One load when it did not.
  bool take() {
    return rung_.load(std::memory_order_acquire) && rung_.exchange(false, std::memory_order_acq_rel);
  }
  /// Readable from a ring on, until the first call of this after the take().
  pollfd wait_descriptor() {
    eventfd_t rings = 0;
    (void)::eventfd_read(event_.get(), &rings);
    if (rung_.load(std::memory_order_acquire)) (void)::eventfd_write(event_.get(), 1);
    return {.fd = event_.get(), .events = POLLIN, .revents = 0};
  }

 private:
  UniqueFd event_;
  std::atomic<bool> rung_ = false;
};

}  // namespace lockstep::tcp
