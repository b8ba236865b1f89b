#include "lockstep/train/data_parallel/hooks/stale_average.h"

#include <utility>

namespace lockstep {

Work StaleAverageHook::begin(const GradientBucket& bucket) {
  const auto [found, is_new] = states_.try_emplace(bucket.number);
  State& state = found->second;
  if (is_new) {
    for (torch::Tensor& gradients : state.gradients)
      gradients = bucket.scratch(bucket.flat.sizes(), bucket.flat.scalar_type());
  }
  state.is_first = is_new;
  state.sent = 1 - state.sent;
  torch::Tensor& mine = state.gradients[state.sent];
  mine.copy_(bucket.flat);
  return std::exchange(state.work, bucket.average(mine));
}

std::optional<Work> StaleAverageHook::proceed(const GradientBucket& bucket) {
  const State& state = states_.at(bucket.number);
  if (state.is_first)
    bucket.flat.zero_();
  else
    bucket.flat.copy_(state.gradients[1 - state.sent]);
  return std::nullopt;
}

}  // namespace lockstep
