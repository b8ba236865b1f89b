// The models that training is measured on; models.py has the same ones for the peers.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>

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

/// He et al. 2016, "Deep Residual Learning": two convolutions beside a shortcut.
struct BasicBlockImpl : torch::nn::Module {
  BasicBlockImpl(std::int64_t in, std::int64_t out, std::int64_t stride) {
    using namespace torch::nn;
    main = register_module(
        "main",
        Sequential(Conv2d(Conv2dOptions(in, out, 3).stride(stride).padding(1).bias(false)), BatchNorm2d(out),
                   ReLU(), Conv2d(Conv2dOptions(out, out, 3).padding(1).bias(false)), BatchNorm2d(out)));
    if (stride != 1 || in != out) {
      shortcut = register_module(
          "shortcut",
          Sequential(Conv2d(Conv2dOptions(in, out, 1).stride(stride).bias(false)), BatchNorm2d(out)));
    }
  }
  torch::Tensor forward(const torch::Tensor& x) {
    return torch::relu(main->forward(x) + (shortcut ? shortcut->forward(x) : x));
  }
  torch::nn::Sequential main{nullptr}, shortcut{nullptr};
};
TORCH_MODULE(BasicBlock);

/// 18 layers on 32 x 32 images; 11 million parameters, and buffers.
inline Task resnet18() {
  using namespace torch::nn;
  Sequential net(Conv2d(Conv2dOptions(3, 64, 7).stride(2).padding(3).bias(false)), BatchNorm2d(64), ReLU(),
                 MaxPool2d(MaxPool2dOptions(3).stride(2).padding(1)));
  std::int64_t channels = 64;
  for (const auto& [out, stride] : {std::pair{64, 1}, {128, 2}, {256, 2}, {512, 2}}) {
    net->push_back(BasicBlock(channels, out, stride));
    net->push_back(BasicBlock(out, out, 1));
    channels = out;
  }
  net->push_back(AdaptiveAvgPool2d(1));
  net->push_back(Flatten());
  net->push_back(Linear(512, 10));
  return {net, torch::randn({32, 3, 32, 32}), torch::randint(10, {32})};
}

inline Task task_named(const std::string& name) {
  if (name == "convnet") return convnet();
  if (name == "mlp") return mlp();
  if (name == "resnet18") return resnet18();
  throw std::invalid_argument("there is no model '" + name + "'");
}

}  // namespace bench
