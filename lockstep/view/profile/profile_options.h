// Whether a run leaves a profile, and where.
#pragma once

#include <optional>
#include <string>

namespace lockstep::view {

struct ProfileOptions {
  std::string folder = {};  ///< where its files go; empty: there are none
  bool all_ranks =
      false;  ///< a file of each rank; else of those with the least, the median and the most communication, and rank 0

  /// `folder`, or LOCKSTEP_PROFILE; LOCKSTEP_PROFILE_ALL=1, or TRACE_ALL_TASKS=yes as mpitrace has it. Throws invalid_argument.
  static ProfileOptions from_environment(const std::optional<std::string>& folder = std::nullopt);
};

}  // namespace lockstep::view
