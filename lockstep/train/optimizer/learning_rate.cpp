#include "lockstep/train/optimizer/learning_rate.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <sstream>
#include <string>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

void require_factor(double value, const std::string& what) {
  if (std::isfinite(value) && value >= 0) return;
  std::ostringstream found;
  found << what << " is finite and not negative, found " << value;
  throw_invalid_argument(found.str());
}

void require_length(std::uint64_t steps, const std::string& what) {
  if (steps == 0) throw_invalid_argument(what + " is at least 1 step, found 0");
}

/// How much of `steps` is over at `step`, 0 to 1.
double share(std::uint64_t step, std::uint64_t steps) {
  return static_cast<double>(std::min(step, steps)) / static_cast<double>(steps);
}

}  // namespace

LearningRate::LearningRate(double rate) : rate_([rate](std::uint64_t) { return rate; }) {
  require_factor(rate, "a learning rate");
}

LearningRate LearningRate::step_decay(double rate, std::uint64_t every, double factor) {
  require_factor(rate, "a learning rate");
  require_factor(factor, "the factor by which a learning rate decays");
  require_length(every, "the time between two decays of a learning rate");
  return LearningRate([=](std::uint64_t step) {
    const std::uint64_t decays = step / every;
    return rate * std::pow(factor, static_cast<double>(decays));
  });
}

LearningRate LearningRate::cosine(double rate, std::uint64_t steps, double lowest) {
  require_factor(rate, "a learning rate");
  require_factor(lowest, "the lowest learning rate of a cosine");
  require_length(steps, "the length of a cosine");
  return LearningRate([=](std::uint64_t step) {
    return lowest + (rate - lowest) * (1 + std::cos(std::numbers::pi * share(step, steps))) / 2;
  });
}

LearningRate LearningRate::scaled(int ranks, std::uint64_t warm_up) const {
  if (ranks < 1)
    throw_invalid_argument(
        std::string("a learning rate is scaled by at least 1 rank, found ").append(std::to_string(ranks)));
  return LearningRate([=, rate = rate_](std::uint64_t step) {
    return rate(step) * (1 + (ranks - 1) * (warm_up == 0 ? 1 : share(step, warm_up)));
  });
}

LearningRate LearningRate::then(std::uint64_t steps, const LearningRate& next) const {
  require_length(steps, "what stands before the next part of a learning rate");
  return LearningRate([=, first = rate_, second = next.rate_](std::uint64_t step) {
    return step < steps ? first(step) : second(step - steps);
  });
}

void LearningRate::apply(torch::optim::Optimizer& optimizer, std::uint64_t step) const {
  const double rate = at(step);
  for (auto& group : optimizer.param_groups()) group.options().set_lr(rate);
}

}  // namespace lockstep
