#include "lockstep/train/trainer/axis.h"

#include <algorithm>

namespace lockstep {

double round_step(double least) {
  const double power = std::pow(10, std::floor(std::log10(least)));
  for (const double times : {1.0, 2.0, 5.0}) {
    if (times * power >= least * (1 - 1e-9)) return times * power;
  }
  return 10 * power;
}

Axis axis_for(double low, double high) {
  // So that neither the difference nor a step of it is infinite or vanishes beside the values.
  constexpr double most = 1e300;
  low = std::clamp(low, -most, most);
  high = std::clamp(high, -most, most);
  const double range = std::max({high - low, 1e-6 * std::max(std::abs(low), std::abs(high)), 1e-300});
  const double step = round_step(range / 5);
  Axis axis{std::floor(low / step + 1e-9) * step, std::ceil(high / step - 1e-9) * step, step};
  if (axis.high <= axis.low) axis.high = axis.low + step;
  return axis;
}

}  // namespace lockstep
