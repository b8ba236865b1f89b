#include "lockstep/train/replicas/gradient_norm.h"

#include <cmath>

namespace lockstep {

double gradient_squares(const torch::Tensor& parameter) {
  const torch::NoGradGuard no_grad;
  const torch::Tensor& gradient = parameter.grad();
  if (!gradient.defined()) return 0;
  const torch::Tensor values = gradient.is_sparse() ? gradient.coalesce().values() : gradient;
  return std::pow(values.norm(2, torch::kFloat64).item<double>(), 2);
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
