// Nothing in Lockstep waits for ever. A Deadline is a point in time that travels down through every call that
// may wait, so that five nested waits of a call share one limit instead of adding up five.
#pragma once

#include <algorithm>
#include <chrono>

namespace lockstep {

class Deadline {
 public:
  using Clock = std::chrono::steady_clock;

  /// Never expires: for debuggers and for tests, never a default.
  static constexpr Deadline never() { return Deadline(Clock::time_point::max()); }
  /// Expires `duration` from now; a duration too long to represent is never().
  static Deadline after(Clock::duration duration) {
    const auto now = Clock::now();
    return duration >= Clock::time_point::max() - now ? never() : Deadline(now + duration);
  }
  static constexpr Deadline at(Clock::time_point when) { return Deadline(when); }

  bool expired() const { return when_ != Clock::time_point::max() && Clock::now() >= when_; }
  bool is_never() const { return when_ == Clock::time_point::max(); }
  Clock::time_point when() const { return when_; }
  /// Time left, at least zero; Clock::duration::max() for never().
  Clock::duration remaining() const {
    return is_never() ? Clock::duration::max() : std::max(when_ - Clock::now(), Clock::duration::zero());
  }
  /// Time left for poll(2): rounded up, capped at `cap`, so that a wait can also look at other things.
  int poll_milliseconds(std::chrono::milliseconds cap) const {
    if (is_never()) return static_cast<int>(cap.count());
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(remaining());
    return static_cast<int>(std::min(left, cap).count());
  }
  /// For waits that are to outlast others with this deadline.
  Deadline later_by(Clock::duration duration) const {
    return duration >= Clock::time_point::max() - when_ ? never() : Deadline(when_ + duration);
  }
  Deadline earlier_of(Deadline other) const { return Deadline(std::min(when_, other.when_)); }

 private:
  explicit constexpr Deadline(Clock::time_point when) : when_(when) {}
  Clock::time_point when_;
};

}  // namespace lockstep
