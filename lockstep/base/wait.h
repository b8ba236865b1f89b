// How a rank waits for others inside one host. A spin costs 0.3 us, a futex round trip 80 us, and with more
// ranks than cores a spinning rank keeps the one it waits for from running; so a wait climbs a ladder: spin a
// short while, yield, then sleep on a doorbell that whoever makes progress rings.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace lockstep {

/// Memory shared by all ranks of a host, zeroed at the start. Every rank that publishes something rings it; a
/// ring costs one load while nobody sleeps.
class Doorbell {
 public:
  /// Call after publishing by a sequentially consistent store: either the ring sees the sleeper, or the
  /// sleeper's last look sees what was published. After a weaker store a sleeper may miss the ring until its
  /// nap is over.
  void ring();

  /// A sleeper's three steps: `prepare`, look once more at what is waited for, then `sleep` or `cancel`. A
  /// ring after prepare() ends the sleep at once, so nothing is missed in between.
  std::uint32_t prepare();
  void sleep(std::uint32_t ticket, std::chrono::nanoseconds at_most);
  void cancel();

 private:
  std::atomic<std::uint32_t> generation_;
  std::atomic<std::uint32_t> sleepers_;
};

/// How long to stay on each rung; chosen once per process from ranks per available core.
struct WaitPolicy {
  int spins = 4000;                     ///< pause instructions, a few nanoseconds to 40 ns each
  int yields = 200;                     ///< sched_yield calls after that
  std::chrono::microseconds nap{5000};  ///< longest sleep between two looks at deadlines and deaths

  /// With more ranks than cores spinning only steals time, so it is left out.
  static WaitPolicy for_ranks_per_core(double ranks_per_core);
};

/// Pauses the processor for a moment inside a spin.
void spin_pause();

/// One wait: call `step()` after each unsuccessful look. It returns true when the ladder is climbed and the
/// caller should sleep on its doorbell and look at deadlines and deaths. restart() after any progress.
class Backoff {
 public:
  explicit Backoff(const WaitPolicy& policy) : policy_(policy) {}
  bool step();
  void restart() { count_ = 0; }

 private:
  WaitPolicy policy_;
  int count_ = 0;
};

}  // namespace lockstep
