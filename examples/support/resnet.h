// ResNet-18, under the names that torchvision gives its parts: its state dicts are of the same model.
#pragma once

#include <torch/torch.h>

#include <cstdint>

namespace examples {

/// Two convolutions beside a shortcut. Source: He et al. 2016, "Deep Residual Learning".
class BasicBlockImpl : public torch::nn::Module {
 public:
  BasicBlockImpl(std::int64_t in, std::int64_t out, std::int64_t stride)
      : conv1_(convolution(in, out, 3, stride)), bn1_(out), conv2_(convolution(out, out, 3, 1)), bn2_(out) {
    register_module("conv1", conv1_);
    register_module("bn1", bn1_);
    register_module("conv2", conv2_);
    register_module("bn2", bn2_);
    if (stride == 1 && in == out) return;
    downsample_ = register_module(
        "downsample", torch::nn::Sequential(convolution(in, out, 1, stride), torch::nn::BatchNorm2d(out)));
  }

  torch::Tensor forward(const torch::Tensor& x) {
    const auto y = bn2_(conv2_(torch::relu(bn1_(conv1_(x)))));
    return torch::relu(y + (downsample_ ? downsample_->forward(x) : x));
  }

  static torch::nn::Conv2d convolution(std::int64_t in, std::int64_t out, std::int64_t size,
                                       std::int64_t stride) {
    return torch::nn::Conv2d(
        torch::nn::Conv2dOptions(in, out, size).stride(stride).padding(size / 2).bias(false));
  }

 private:
  torch::nn::Conv2d conv1_;
  torch::nn::BatchNorm2d bn1_;
  torch::nn::Conv2d conv2_;
  torch::nn::BatchNorm2d bn2_;
  torch::nn::Sequential downsample_{nullptr};
};
TORCH_MODULE(BasicBlock);

/// As for ImageNet, whose images have 224 pixels a side: the first layers make them 4 times smaller. [N, 3,
/// H, W] to [N, classes].
class ResNet18Impl : public torch::nn::Module {
 public:
  explicit ResNet18Impl(std::int64_t classes = 1000)
      : conv1_(BasicBlockImpl::convolution(3, 64, 7, 2)),
        bn1_(64),
        layer1_(layer(64, 64, 1)),
        layer2_(layer(64, 128, 2)),
        layer3_(layer(128, 256, 2)),
        layer4_(layer(256, 512, 2)),
        fc_(512, classes) {
    register_module("conv1", conv1_);
    register_module("bn1", bn1_);
    register_module("layer1", layer1_);
    register_module("layer2", layer2_);
    register_module("layer3", layer3_);
    register_module("layer4", layer4_);
    register_module("fc", fc_);
  }

  torch::Tensor forward(const torch::Tensor& images) {
    auto x = torch::max_pool2d(torch::relu(bn1_(conv1_(images))), 3, 2, 1);
    x = layer4_->forward(layer3_->forward(layer2_->forward(layer1_->forward(x))));
    return fc_(torch::adaptive_avg_pool2d(x, {1, 1}).flatten(1));
  }

 private:
  static torch::nn::Sequential layer(std::int64_t in, std::int64_t out, std::int64_t stride) {
    return torch::nn::Sequential(BasicBlock(in, out, stride), BasicBlock(out, out, 1));
  }

  torch::nn::Conv2d conv1_;
  torch::nn::BatchNorm2d bn1_;
  torch::nn::Sequential layer1_, layer2_, layer3_, layer4_;
  torch::nn::Linear fc_;
};
TORCH_MODULE(ResNet18);

}  // namespace examples
