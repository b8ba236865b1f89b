// What a process has taken of the machine.
#pragma once

#include <sys/resource.h>

#include <cstdint>

namespace lockstep::base {

struct ProcessCosts {
  std::uint64_t user_ns = 0;
  std::uint64_t system_ns = 0;
  std::uint64_t most_resident_bytes = 0;
};

inline ProcessCosts costs_of(const rusage& usage) {
  const auto ns = [](const timeval& time) {
    return static_cast<std::uint64_t>(time.tv_sec) * 1'000'000'000 +
           static_cast<std::uint64_t>(time.tv_usec) * 1000;
  };
  return {ns(usage.ru_utime), ns(usage.ru_stime), static_cast<std::uint64_t>(usage.ru_maxrss) * 1024};
}

/// Of this process so far.
inline ProcessCosts own_costs() {
  rusage usage{};
  (void)::getrusage(RUSAGE_SELF, &usage);
  return costs_of(usage);
}

}  // namespace lockstep::base
