#include "lockstep/train/replicas/gradient_norm.h"

#include <cmath>

namespace lockstep {

double gradient_squares(const torch::Tensor& parameter) {
  const torch::NoGradGuard no_grad;
  return parameter.grad().defined() ? std::pow(parameter.grad().norm(2, torch::kFloat64).item<double>(), 2)
                                    : 0;
}

void clip_gradients(const std::vector<torch::Tensor>& parameters, double norm, double max_norm) {
  const torch::NoGradGuard no_grad;
  const double scale = max_norm / (norm + 1e-6);
  if (scale >= 1) return;
  for (const torch::Tensor& parameter : parameters) {
    if (parameter.grad().defined()) parameter.mutable_grad().mul_(scale);
  }
}

}  // namespace lockstep
