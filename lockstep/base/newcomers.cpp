#include "lockstep/base/newcomers.h"

#include <algorithm>

namespace lockstep {

std::optional<int> Newcomers::add(int fd, const std::string& source) {
  std::optional<int> gone;
  const auto own = counts_.find(source);
  if (own != counts_.end() && own->second >= limits_.most / 2) {
    gone = take_oldest_of(source);
  } else if (all_.size() >= limits_.most) {
    const auto most = std::ranges::max_element(counts_, {}, [](const auto& each) { return each.second; });
    gone = take_oldest_of(std::string(most->first));
  }
  all_.push_back({fd, source, Deadline::Clock::now()});
  ++counts_[source];
  return gone;
}

bool Newcomers::remove(int fd) {
  const auto found = std::ranges::find(all_, fd, &Newcomer::fd);
  if (found == all_.end()) return false;
  take(found);
  return true;
}

std::optional<int> Newcomers::take_late() {
  if (all_.empty() || all_.front().since + limits_.patience > Deadline::Clock::now()) return std::nullopt;
  return take(all_.begin());
}

Deadline Newcomers::next_deadline() const {
  return all_.empty() ? Deadline::never() : Deadline::at(all_.front().since + limits_.patience);
}

int Newcomers::take_oldest_of(const std::string& source) {
  return take(std::ranges::find(all_, source, &Newcomer::source));
}

int Newcomers::take(std::vector<Newcomer>::iterator which) {
  const int fd = which->fd;
  const auto count = counts_.find(which->source);
  if (--count->second == 0) counts_.erase(count);
  all_.erase(which);
  return fd;
}

}  // namespace lockstep
