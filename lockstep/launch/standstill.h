// A job that hangs has not failed: for minutes nothing is said but by each rank that waits, of those that it waits for. The
// launcher sees all ranks, and says once where they are.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>
#include <vector>

#include "lockstep/base/deadline.h"
#include "lockstep/view/live/live_reader.h"

namespace lockstep::launch {

/// Notices that no rank completes a call or a step while some rank waits in a call. Not thread safe.
class Standstill {
 public:
  using Time = Deadline::Clock::time_point;

  /// `after`: for so long.
  explicit Standstill(std::chrono::nanoseconds after) : after_(after) {}

  /// A look at all ranks. True once for each standstill: again only after something has been completed.
  bool look(const std::vector<view::LiveHost>& hosts, Time now = Deadline::Clock::now());
  /// Nothing has gone on since look() was true.
  bool lasts() const { return is_told_; }
  /// How often to look.
  std::chrono::nanoseconds between_looks() const {
    return std::clamp<std::chrono::nanoseconds>(after_ / 4, std::chrono::milliseconds(50),
                                                std::chrono::seconds(5));
  }
  /// The user has stopped the whole job, or lets it go on: time counts anew.
  void forget() { since_.reset(); }

 private:
  std::chrono::nanoseconds after_;
  std::uint64_t completed_ = 0;
  std::optional<Time> since_;  // nothing has been completed
  bool is_told_ = false;
};

}  // namespace lockstep::launch
