// What tests of checkpoints share: a folder with a checkpoint, and models that are trained and compared.
#pragma once

#include <torch/torch.h>

#include <algorithm>
#include <filesystem>
#include <vector>

#include "lockstep/base/folder_test.h"
#include "lockstep/group/group.h"
#include "lockstep/train/checkpoint/checkpoint.h"
#include "lockstep/train/replicas/model_tensors.h"
#include "lockstep/train/tensor/ranks_test.h"

namespace lockstep::test {

constexpr CheckpointOptions sharded = {.sharded = true};

inline std::vector<torch::Tensor> copy_of(const torch::nn::Module& net) {
  std::vector<torch::Tensor> tensors;
  for (const auto& item : tensors_of(net)) tensors.push_back(item.tensor.detach().clone());
  return tensors;
}

inline bool same(const std::vector<torch::Tensor>& a, const std::vector<torch::Tensor>& b) {
  return !a.empty() && std::ranges::equal(a, b, same_bits);
}

/// Steps of a model that takes 4 numbers, each rank with a batch of its own.
template <class Model>
void train(Model& model, torch::optim::Optimizer& optimizer, const Group& group, int from, int to) {
  for (int step = from; step < to; ++step) {
    const auto x = torch::sin(torch::arange(32, torch::kFloat32).view({8, 4}) * (step + 1) + group.rank());
    optimizer.zero_grad();
    model(x).pow(2).sum().backward();
    optimizer.step();
  }
}

class CheckpointFolderTest : public FolderTest {
 protected:
  std::filesystem::path path_ = folder_ / "model.ckpt";
};

}  // namespace lockstep::test
