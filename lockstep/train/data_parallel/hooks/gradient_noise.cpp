#include "lockstep/train/data_parallel/hooks/gradient_noise.h"

#include <cmath>
#include <sstream>

#include "lockstep/base/error.h"
#include "lockstep/group/collectives.h"

namespace lockstep {
namespace {

/// In f64: what is estimated is a small difference of such sums.
double squared_length(const torch::Tensor& flat) {
  constexpr std::int64_t piece = std::int64_t{1} << 16;  // stays in cache
  double sum = 0;
  for (const torch::Tensor& part : flat.detach().split(piece)) {
    const torch::Tensor wide = part.to(torch::kFloat64);
    sum += wide.dot(wide).item<double>();
  }
  return sum;
}

}  // namespace

GradientNoise::GradientNoise(double decay) : decay_(decay) {
  if (decay >= 0 && decay < 1) return;
  std::ostringstream found;
  found << "the decay of a gradient noise scale is at least 0 and less than 1, found " << decay;
  throw_invalid_argument(found.str());
}

void GradientNoise::add(double small_batch, double small_squared, double big_batch, double big_squared) {
  if (!(small_batch > 0 && small_batch < big_batch && std::isfinite(big_batch))) {
    std::ostringstream found;
    found << "a gradient noise scale needs a small batch and a larger one, found " << small_batch << " and "
          << big_batch << " samples";
    throw_invalid_argument(found.str());
  }
  if (!std::isfinite(small_squared) || !std::isfinite(big_squared)) return;
  const double signal = (big_batch * big_squared - small_batch * small_squared) / (big_batch - small_batch);
  const double noise = (small_squared - big_squared) / (1 / small_batch - 1 / big_batch);
  signal_ = decay_ * signal_ + (1 - decay_) * signal;
  noise_ = decay_ * noise_ + (1 - decay_) * noise;
  weight_ = decay_ * weight_ + (1 - decay_);
}

std::optional<double> GradientNoise::scale() const {
  if (!(signal_ > 0)) return std::nullopt;
  return noise_ / signal_;
}

NoiseScaleHook::NoiseScaleHook(std::uint64_t samples_per_rank, double decay)
    : samples_per_rank_(static_cast<double>(samples_per_rank)), estimate_(decay) {
  if (samples_per_rank == 0) throw_invalid_argument("a rank's batch has at least 1 sample, found 0");
}

void NoiseScaleHook::start_step() {
  begun_ = averaged_ = 0;
  own_squared_[0] = average_squared_ = 0;
  is_exchanging_ = false;
}

Work NoiseScaleHook::begin(const GradientBucket& bucket) {
  if (bucket.number == 0) start_step();  // also after a step that failed
  ++begun_;
  own_squared_[0] += squared_length(bucket.flat);
  return bucket.average(bucket.flat);
}

std::optional<Work> NoiseScaleHook::proceed(const GradientBucket& bucket) {
  if (!is_exchanging_) {
    average_squared_ += squared_length(bucket.flat);
    if (++averaged_ < begun_ || bucket.contributors < bucket.group.size()) return std::nullopt;
    is_exchanging_ = true;
    return all_reduce(bucket.group, own_squared_, ReduceOp::average);
  }
  estimate_.add(samples_per_rank_, own_squared_[0], samples_per_rank_ * bucket.group.size(),
                average_squared_);
  is_exchanging_ = false;
  return std::nullopt;
}

}  // namespace lockstep
