// Whether a run leaves a profile, and where.
#pragma once

#include <optional>
#include <string>

#include "lockstep/view/profile/machine_limits.h"

namespace lockstep::view {

struct ProfileOptions {
  std::string folder = {};  ///< where its files go; empty: there are none
  bool all_ranks =
      false;  ///< a file of each rank; else of those with the least, the median and the most communication, and rank 0

  std::optional<MachineLimits> limits = {};  ///< that bandwidths are held against, in a report too

  /// `folder`, or LOCKSTEP_PROFILE; LOCKSTEP_PROFILE_ALL=1, or TRACE_ALL_TASKS=yes as mpitrace has it; LOCKSTEP_MACHINE_FILE where
  /// there is a folder or `has_report`. Throws invalid_argument, system.
  static ProfileOptions from_environment(const std::optional<std::string>& folder = std::nullopt,
                                         bool has_report = false);
};

}  // namespace lockstep::view
