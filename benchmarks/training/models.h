// The models that training is measured on; models.py has the same ones for the peers.
#pragma once

#include <torch/torch.h>

#include <stdexcept>
#include <string>

#include "examples/support/resnet.h"

namespace bench {

struct Task {
  torch::nn::Sequential net;
  torch::Tensor input;
  torch::Tensor target;
};

/// 28 x 28, 2 convolutions; 1.2 million parameters. Much to compute, little to average.
inline Task convnet() {
  using namespace torch::nn;
  Sequential net(Conv2d(1, 32, 3), ReLU(), Conv2d(32, 64, 3), ReLU(), MaxPool2d(2), Flatten(),
                 Linear(9216, 128), ReLU(), Linear(128, 10));
  return {net, torch::randn({64, 1, 28, 28}), torch::randint(10, {64})};
}

/// 10 million parameters. Much to average, little to compute.
inline Task mlp() {
  using namespace torch::nn;
  Sequential net(Linear(784, 2048), ReLU(), Linear(2048, 2048), ReLU(), Linear(2048, 2048), ReLU(),
                 Linear(2048, 10));
  return {net, torch::randn({64, 784}), torch::randint(10, {64})};
}

/// 25 million parameters, 100 MB.
inline Task wide_mlp() {
  using namespace torch::nn;
  Sequential net(Linear(1024, 4096), ReLU(), Linear(4096, 4096), ReLU(), Linear(4096, 1024));
  return {net, torch::randn({64, 1024}), torch::randint(1024, {64})};
}

/// 18 layers on 32 x 32 images; 11 million parameters, and buffers.
inline Task resnet18() {
  return {torch::nn::Sequential(examples::ResNet18(10)), torch::randn({32, 3, 32, 32}),
          torch::randint(10, {32})};
}

inline Task task_named(const std::string& name) {
  if (name == "convnet") return convnet();
  if (name == "mlp") return mlp();
  if (name == "wide_mlp") return wide_mlp();
  if (name == "resnet18") return resnet18();
  throw std::invalid_argument("there is no model '" + name + "'");
}

}  // namespace bench
