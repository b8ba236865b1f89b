// What ranks did between two looks at them, as rates: what a table that is refreshed shows of each.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "lockstep/view/live/live_reader.h"

namespace lockstep::view {

struct RankRates {
  int rank = 0;  ///< world rank
  int pid = 0;
  std::uint64_t steps = 0;  ///< of training, so far
  std::optional<std::uint64_t> step_ns =
      {};  ///< mean from one step's end to the next one's; nullopt: there was none
  double calls_per_second = 0;
  /// Of calls; or of gradients where these are more: ranks of a host read them from each other without a call.
  double bytes_per_second = 0;
  double blocked_share = 0;  ///< of the time: in calls, in waits for them, and exposed in steps; 0 to 1
  std::optional<double> exposed_share =
      {};  ///< of the steps' time: exposed work and waiting; nullopt: there was no step
  std::uint64_t last_arrivals = 0;               ///< collectives to which it came last of all
  std::uint64_t late_ns = 0;                     ///< median of how long after the one before it, in these
  std::uint64_t resident_bytes = 0;              ///< at the end
  std::optional<double> images_per_second = {};  ///< where the program sets a counter "images/s": as last set
};

/// Of each rank of `after`, in its order. Both are looks of one reader at one job, `before` the earlier one.
std::vector<RankRates> live_rates(const LiveHost& before, const LiveHost& after);

}  // namespace lockstep::view
