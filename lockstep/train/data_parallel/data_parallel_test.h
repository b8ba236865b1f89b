// Small models whose gradients are known, for the tests of DistributedDataParallel.
#pragma once

#include <gtest/gtest.h>

#include "lockstep/group/group.h"
#include "lockstep/train/data_parallel/data_parallel.h"

namespace lockstep::test {

inline const DataParallelOptions small_buckets{.first_bucket_bytes = 1, .bucket_cap_bytes = 1};

/// Weights of 1, so that the gradient of sum(output) is the input.
inline torch::nn::Linear ones(std::int64_t inputs, std::int64_t outputs) {
  torch::nn::Linear linear(inputs, outputs);
  const torch::NoGradGuard no_grad;
  for (auto& p : linear->parameters()) p.fill_(1);
  return linear;
}

inline torch::Tensor row(double value) { return torch::full({1, 3}, value); }

/// The gradient of the weight when rank r's input is full of r + 1.
inline double average_of_inputs(const Group& group) { return (group.size() + 1) / 2.0; }

inline void expect_weight_gradient(const torch::nn::Linear& net, double value) {
  ASSERT_TRUE(net->weight.grad().defined());
  EXPECT_TRUE(torch::allclose(net->weight.grad(), torch::full_like(net->weight, value)))
      << net->weight.grad();
}

struct Unused : torch::nn::Module {
  Unused() {
    register_module("used", used);
    register_module("spare", spare);
  }
  torch::Tensor forward(const torch::Tensor& x, bool with_spare) {
    return with_spare ? used(x) + spare(x) : used(x);
  }
  torch::nn::Linear used = ones(3, 2), spare = ones(3, 2);
};

}  // namespace lockstep::test
