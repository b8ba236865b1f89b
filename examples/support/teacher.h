// A task that needs no data set: to find out what a small random network computes, from noisy samples of it.
#pragma once

#include <torch/torch.h>

#include <cmath>
#include <cstdint>

namespace examples {

struct Samples {
  torch::Tensor x, y;  // [samples, inputs], [samples, outputs]

  Samples to(torch::Device device) const { return {x.to(device), y.to(device)}; }
};

/// Drawn from libtorch's generator: after the same torch::manual_seed() it is the same one on every rank.
class Teacher {
 public:
  Teacher(std::int64_t inputs, std::int64_t outputs, double noise)
      : hidden_(torch::randn({inputs, 64}) / std::sqrt(static_cast<double>(inputs))),
        output_(torch::randn({64, outputs}) / 8),
        noise_(noise) {}

  Samples draw(std::int64_t samples) const {
    const auto x = torch::randn({samples, hidden_.size(0)});
    const auto y = torch::tanh(x.matmul(hidden_)).matmul(output_);
    return {x, y + noise_ * torch::randn_like(y)};
  }

 private:
  torch::Tensor hidden_, output_;
  double noise_;
};

}  // namespace examples
