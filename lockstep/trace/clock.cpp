#include "lockstep/trace/clock.h"

#include <algorithm>
#include <atomic>
#include <chrono>

#include "lockstep/trace/record_switch.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <x86intrin.h>
#endif

namespace lockstep::trace {
namespace {

std::uint64_t system_ns() {
  return static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch() /
                                    std::chrono::nanoseconds(1));
}

#if defined(__x86_64__)

constexpr std::uint64_t most_ticks_from_anchor = std::uint64_t{1} << 20;
constexpr std::uint64_t least_baseline_ns = 10'000'000;
constexpr std::uint64_t longest_baseline_ns = 10'000'000'000;

bool counts_at_one_rate() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid(0x80000007, &eax, &ebx, &ecx, &edx) != 0 && (edx & (1U << 8)) != 0;
}

struct Reading {
  std::uint64_t ticks = 0;
  std::uint64_t ns = 0;
};

/// A thread that is put off the processor between the two readings would take its clock for late by as long.
Reading read_both() {
  constexpr std::uint64_t undisturbed_ticks = 500;
  Reading best;
  std::uint64_t shortest = ~std::uint64_t{0};
  for (int attempts = 0; attempts < 4 && shortest > undisturbed_ticks; ++attempts) {
    const std::uint64_t before = __rdtsc(), ns = system_ns(), took = __rdtsc() - before;
    if (took < shortest) best = {before + took / 2, ns};
    shortest = std::min(shortest, took);
  }
  return best;
}

/// How long a tick is, from two readings far apart; better the farther.
class Rate {
 public:
  /// Nanoseconds a tick, times 2^32; 0: not known yet.
  std::uint64_t get() const { return rate_.load(std::memory_order_relaxed); }
  void refine(const Reading& now) {
    const std::uint64_t baseline = now.ns - first_.ns;
    if (!is_usable_ || baseline < least_baseline_ns || now.ticks <= first_.ticks) return;
    if (get() != 0 && baseline > longest_baseline_ns) return;
    const double rate = static_cast<double>(baseline) / static_cast<double>(now.ticks - first_.ticks);
    rate_.store(static_cast<std::uint64_t>(rate * 0x1p32), std::memory_order_relaxed);
  }

 private:
  const bool is_usable_ = counts_at_one_rate();
  const Reading first_ = read_both();
  std::atomic<std::uint64_t> rate_ = 0;
};

Rate& rate() {
  static Rate instance;
  return instance;
}

// The first of the two readings is made when the library is loaded, so that the rate is known by the first
// collective.
[[maybe_unused]] const Rate& begun_at_load = rate();

// The rate as this thread saw it last, beside its anchor: one line to look at.
struct Anchor {
  Reading at;
  std::uint64_t rate = 0;
  std::uint64_t latest = 0;  // that was given out
};
#if defined(__GNUC__)
__attribute__((tls_model("initial-exec")))
#endif
thread_local Anchor anchor;

std::uint64_t set_anchor() {
  anchor.at = read_both();
  rate().refine(anchor.at);
  anchor.rate = rate().get();
  anchor.at.ns = std::max(anchor.at.ns, anchor.latest);  // never backwards
  return anchor.latest = anchor.at.ns;
}

#endif

}  // namespace

std::uint64_t now_ns() {
#if defined(__x86_64__)
  const std::uint64_t ticks = __rdtsc() - anchor.at.ticks;
  if (ticks >= most_ticks_from_anchor || anchor.rate == 0) return set_anchor();
  return anchor.latest = anchor.at.ns + ((ticks * anchor.rate) >> 32);
#else
  return system_ns();
#endif
}

std::uint64_t record_now_ns() { return record_is_on ? now_ns() : 0; }

}  // namespace lockstep::trace
