// The models that training is measured on, and what each rank trains them with; models.py has the same ones
// for the peers. A model is the same on all ranks, a batch is the rank's own.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "examples/support/resnet.h"

namespace bench {

struct Model {
  torch::nn::Sequential net;
  std::vector<std::int64_t> input;  ///< the shape of a rank's batch
  std::int64_t classes = 10;
};

struct Batch {
  torch::Tensor input;
  torch::Tensor target;
};

/// 28 x 28, 2 convolutions; 1.2 million parameters. Much to compute, little to average.
inline Model convnet() {
  using namespace torch::nn;
  return {Sequential(Conv2d(1, 32, 3), ReLU(), Conv2d(32, 64, 3), ReLU(), MaxPool2d(2), Flatten(),
                     Linear(9216, 128), ReLU(), Linear(128, 10)),
          {64, 1, 28, 28}};
}

/// 10 million parameters. Much to average, little to compute.
inline Model mlp() {
  using namespace torch::nn;
  return {Sequential(Linear(784, 2048), ReLU(), Linear(2048, 2048), ReLU(), Linear(2048, 2048), ReLU(),
                     Linear(2048, 10)),
          {64, 784}};
}

/// 25 million parameters, 100 MB.
inline Model wide_mlp() {
  using namespace torch::nn;
  return {Sequential(Linear(1024, 4096), ReLU(), Linear(4096, 4096), ReLU(), Linear(4096, 1024)),
          {64, 1024},
          1024};
}

/// 18 layers on 32 x 32 images; 11 million parameters, and buffers.
inline Model resnet18() { return {torch::nn::Sequential(examples::ResNet18(10)), {32, 3, 32, 32}}; }

/// The same parameters each time.
inline Model model_named(const std::string& name) {
  torch::manual_seed(1);
  if (name == "convnet") return convnet();
  if (name == "mlp") return mlp();
  if (name == "wide_mlp") return wide_mlp();
  if (name == "resnet18") return resnet18();
  throw std::invalid_argument("there is no model '" + name + "'");
}

/// What `rank` trains with, the same each time.
inline Batch batch_of(const Model& model, int rank) {
  constexpr std::uint64_t first_seed = 1000;
  torch::manual_seed(first_seed + static_cast<std::uint64_t>(rank));
  return {torch::randn(model.input), torch::randint(model.classes, {model.input.front()})};
}

}  // namespace bench
