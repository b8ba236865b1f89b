// Of what a step waits for when nothing covers it: the time in which this rank did no work for the others
// either.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "lockstep/group/group.h"
#include "lockstep/trace/clock.h"

namespace lockstep {

/// Measures from its making on, on the thread that waits for the group's works.
class ExposedTime {
 public:
  explicit ExposedTime(const Group& group)
      : group_(group), begin_ns_(trace::now_ns()), own_work_(group.progress_times().own_work) {}

  /// Nanoseconds that passed without this rank copying or reducing for a collective.
  std::uint64_t waited_ns() const {
    const auto passed = std::chrono::nanoseconds(trace::now_ns() - begin_ns_);
    const auto worked = std::min(passed, group_.progress_times().own_work - own_work_);
    return static_cast<std::uint64_t>((passed - worked).count());
  }

 private:
  const Group& group_;
  std::uint64_t begin_ns_;
  std::chrono::nanoseconds own_work_;
};

}  // namespace lockstep
