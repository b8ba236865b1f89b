// One thread watches everything that can happen to a job: who wants to hear of a descriptor says so before
// each wait.
#pragma once

#include <functional>
#include <vector>

#include "lockstep/base/deadline.h"

namespace lockstep::launch {

class PollSet {
 public:
  /// For the next wait only. `events` as for poll(2); errors and hang-ups count as well.
  void watch(int fd, short events, std::function<void()> ready);
  /// Until one of them is ready or the deadline has passed, then calls what was given for those that are
  /// ready.
  void wait(Deadline deadline);

 private:
  struct Watched {
    int fd;
    short events;
    std::function<void()> ready;
  };
  std::vector<Watched> watched_;
};

}  // namespace lockstep::launch
