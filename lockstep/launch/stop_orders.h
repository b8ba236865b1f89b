// Which signals tell a job to end, and which tell it to end at once. The guard and the job both get them all,
// and have to understand them alike.
#pragma once

#include "lockstep/base/deadline.h"

namespace lockstep::launch {

/// Not thread safe.
class StopOrders {
 public:
  /// A terminal and `timeout` deliver one signal several times; those this close together are one.
  static constexpr std::chrono::milliseconds one_press{100};

  /// True if `signal`, which came at `now`, tells the job to end.
  bool take(int signal, Deadline::Clock::time_point now = Deadline::Clock::now());
  /// The first signal that did, or 0.
  int first() const { return first_; }
  /// Ctrl-C was pressed again: the job is to end at once.
  bool hurried() const { return hurried_; }

 private:
  int first_ = 0;
  bool hurried_ = false;
  Deadline::Clock::time_point first_interrupt_{};
};

}  // namespace lockstep::launch
