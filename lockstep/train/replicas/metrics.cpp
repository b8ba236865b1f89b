#include "lockstep/train/replicas/metrics.h"

#include "lockstep/group/collectives.h"

namespace lockstep {

double metric_average(const Group& group, double value, std::size_t samples) {
  return metric_average(group, std::span<const double>(&value, 1), samples).front();
}

std::vector<double> metric_average(const Group& group, std::span<const double> values, std::size_t samples) {
  const auto weight = static_cast<double>(samples);
  std::vector<double> sums;
  for (const double value : values) sums.push_back(samples == 0 ? 0 : value * weight);
  sums.push_back(weight);
  all_reduce(group, sums).wait();
  const double all_samples = sums.back();
  sums.pop_back();
  for (double& sum : sums) sum /= all_samples;  // 0 / 0 is NaN
  return sums;
}

}  // namespace lockstep
