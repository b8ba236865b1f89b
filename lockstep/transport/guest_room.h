// Where guests wait until they have proven who they are: as many as come, but not for long, and not so many that one
// source keeps others out (base/newcomers.h).
#pragma once

#include <poll.h>

#include <functional>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "lockstep/base/newcomers.h"
#include "lockstep/transport/guest.h"

namespace lockstep {

/// Thread safety: one thread.
class GuestRoom {
 public:
  /// Borrows `trust` and `destination`.
  GuestRoom(const Trust& trust, const Destination& destination, NewcomerLimits limits)
      : trust_(trust), destination_(destination), newcomers_(limits) {}

  /// Takes one of those who wait at the listener. False: nobody does. Error: system (out of descriptors).
  bool take_one(Listener& listener);
  void add_descriptors(std::vector<pollfd>& to) const;
  /// `ready`: what add_descriptors() added, after poll(2). `let_in` gets each guest who has proven himself; he leaves the
  /// room then, and his connection with him unless it is taken.
  void serve(std::span<const pollfd> ready, const std::function<void(Guest&)>& let_in);
  void drop_late();
  Deadline next_deadline() const { return newcomers_.next_deadline(); }

 private:
  void drop(int fd);

  const Trust& trust_;
  const Destination& destination_;
  Newcomers newcomers_;
  std::map<int, std::unique_ptr<Guest>> guests_;  // by descriptor
};

}  // namespace lockstep
