// Where a model is cut into stages.
#pragma once

#include <cstddef>
#include <vector>

namespace lockstep::pipeline {

/// Cuts layers that take `times` into `stages` runs of consecutive ones, so that the slowest run is as fast as can be; of
/// several such cuts the one whose first runs are the longest. Returns how many layers each has, one at least. REQUIRES: at
/// least as many layers as stages; times that are not negative. Cost: O(layers^2 x stages).
std::vector<std::size_t> cut_by_time(const std::vector<double>& times, std::size_t stages);

}  // namespace lockstep::pipeline
