// How far another host's clock is ahead of ours, from questions what it says: the answer lies somewhere between question and
// arrival, so that the fastest exchange knows best. At the start and again and again until the end, since clocks drift apart.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>

namespace lockstep::trace {

/// The same in two processes if they have one clock, as far as the system says it.
std::uint64_t clock_of_this_system();

/// Times are nanoseconds of CLOCK_MONOTONIC, ours but where it says otherwise.
class ClockOffset {
 public:
  /// `ahead_ns`: what was supposed before the first exchange.
  explicit ClockOffset(std::int64_t ahead_ns) : supposed_ns_(ahead_ns) {}

  /// Asked at `asked_ns`; the other clock said `told_ns`; we heard it at `heard_ns`.
  void add(std::uint64_t asked_ns, std::uint64_t told_ns, std::uint64_t heard_ns);

  /// When our clock was at what, as the other's was at `theirs_ns`.
  std::uint64_t to_ours(std::uint64_t theirs_ns) const;
  /// No time of to_ours() within what was asked is off by more, as far as drift is even; nullopt: nothing was asked.
  std::optional<std::uint64_t> error_ns() const;

 private:
  struct Exchange {
    std::uint64_t theirs_ns = 0;
    std::int64_t ahead_ns = 0;
    std::uint64_t round_trip_ns = 0;
  };
  static constexpr std::size_t remembered = 8;

  static const Exchange& best_of(const std::deque<Exchange>& exchanges);
  std::int64_t ahead_at(std::uint64_t theirs_ns) const;

  std::int64_t supposed_ns_;
  std::deque<Exchange> first_, last_;
};

}  // namespace lockstep::trace
