// The axes of a chart: where they begin and end, and round numbers to write beside them.
#pragma once

#include <cmath>

namespace lockstep {

/// An axis from `low` to `high` with a tick at each multiple of `step`.
struct Axis {
  double low = 0, high = 1, step = 0.2;

  double share(double value) const { return (value - low) / (high - low); }
  int ticks() const { return static_cast<int>(std::lround((high - low) / step)) + 1; }
};

/// 1, 2 or 5 times a power of ten, at least `least`.
double round_step(double least);

/// Holds `low` to `high`, both finite, on about six ticks.
Axis axis_for(double low, double high);

}  // namespace lockstep
