#include "communication.h"

#include <lockstep/train.h>

#include <algorithm>

void Communication::collect() {
  const auto more = group_.recorder().steps_since(position_);
  steps_.insert(steps_.end(), more.begin(), more.end());
  position_ = group_.recorder().steps();
}

double Communication::exposed_us_per_step() const {
  double sum_ns = 0;
  for (const auto& step : steps_) sum_ns += static_cast<double>(step.exposed_work_ns + step.exposed_wait_ns);
  const double mean = steps_.empty() ? 0 : sum_ns / static_cast<double>(steps_.size());
  return lockstep::metric_average(group_, mean / 1e3, 1);
}

double Communication::waiting_share(double seconds) const {
  double sum_ns = 0;
  for (const auto& step : steps_) sum_ns += static_cast<double>(step.exposed_wait_ns);
  return lockstep::metric_average(group_, seconds > 0 ? sum_ns / 1e9 / seconds : 0, 1);
}

double Communication::overlap() const {
  std::vector<double> parts;
  for (const auto& step : steps_) {
    parts.push_back(static_cast<double>(step.buckets_complete_at_last_gradient) / std::max(step.buckets, 1U));
  }
  if (parts.empty()) return 0;
  const auto middle = parts.begin() + static_cast<std::ptrdiff_t>(parts.size() / 2);
  std::ranges::nth_element(parts, middle);
  return *middle;
}
