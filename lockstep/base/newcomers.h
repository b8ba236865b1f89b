// Connections of which nobody knows yet whether they belong here. Anyone can open as many as he likes; so they have so
// many places, and whoever opens more than others has to make room for them.
#pragma once

#include <chrono>
#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/deadline.h"

namespace lockstep {

struct NewcomerLimits {
  std::size_t most = 1024;  ///< at least 2; one source has at most half of them
  std::chrono::nanoseconds patience = std::chrono::seconds(5);  ///< how long each may stay
};

/// Notes only who there is, by descriptor; opening and closing is the caller's. Thread safety: one thread.
class Newcomers {
 public:
  explicit Newcomers(NewcomerLimits limits) : limits_(limits) {}

  /// One more, from `source` (Socket::source()). Returns whom the caller has to drop for it, who is not noted any
  /// more: the oldest of a source that has half of the places, or else, where all are taken, of the one that has most.
  std::optional<int> add(int fd, const std::string& source);
  /// False: it was not there.
  bool remove(int fd);
  /// One whose time is over, who is not noted any more.
  std::optional<int> take_late();
  /// When the next one's time is over.
  Deadline next_deadline() const;
  std::size_t count() const { return all_.size(); }

 private:
  struct Newcomer {
    int fd;
    std::string source;
    Deadline::Clock::time_point since;
  };
  int take(std::vector<Newcomer>::iterator which);
  int take_oldest_of(const std::string& source);

  const NewcomerLimits limits_;
  std::vector<Newcomer> all_;                  // oldest first
  std::map<std::string, std::size_t> counts_;  // by source
};

}  // namespace lockstep
