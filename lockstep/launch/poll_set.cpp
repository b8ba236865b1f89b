#include "lockstep/launch/poll_set.h"

#include <poll.h>

#include <chrono>
#include <utility>

namespace lockstep::launch {

void PollSet::watch(int fd, short events, std::function<void()> ready) {
  watched_.push_back({fd, events, std::move(ready)});
}

void PollSet::wait(Deadline deadline) {
  std::vector<pollfd> polled;
  for (const Watched& watched : watched_) polled.push_back({watched.fd, watched.events, 0});
  const int count = ::poll(polled.data(), polled.size(), deadline.poll_milliseconds(std::chrono::hours(1)));
  const std::vector<Watched> now = std::exchange(watched_, {});
  for (std::size_t i = 0; count > 0 && i < now.size(); ++i) {
    if (polled[i].revents != 0) now[i].ready();
  }
}

}  // namespace lockstep::launch
