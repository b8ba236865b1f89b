// Measures every algorithm that can do a call, for `lockstep bench --calibrate`.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "lockstep/group/group.h"
#include "lockstep/schedule/tuning.h"

namespace measure {

struct CalibrationPlan {
  std::vector<lockstep::Operation> operations;
  std::uint64_t most_bytes = 0;  ///< of a rank's buffer
  int passes = 5;                ///< over everything; each time is the median of so many
  double seconds_each = 0.002;   ///< for each time of each pass, and two calls at least
};

/// Returns the group's table with rules for as many ranks as it has. Collective, and the same on all ranks.
/// `say` takes lines about its progress, on rank 0.
lockstep::Tuning run_calibration(const lockstep::Group& world, const CalibrationPlan& plan,
                                 const std::function<void(const std::string&)>& say);

}  // namespace measure
