// What a rank has of a pipeline.
#pragma once

#include <torch/torch.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/train/pipeline/pipeline.h"

namespace lockstep {

/// The modules of this rank's layers, under the layers' names.
struct StageModule : torch::nn::Module {
  void add(const std::string& name, const std::shared_ptr<torch::nn::Module>& module) {
    register_module(name, module);
  }
};

struct Pipeline::Stage {
  int number = 0;
  std::vector<BuiltLayer> layers = {};
  std::vector<std::string> names = {};  ///< of its layers

  std::vector<torch::Tensor> forward(std::vector<torch::Tensor> inputs) const;
};

struct Pipeline::Tie {
  TiedParameters names;
  std::array<int, 2> ranks = {};
  std::array<torch::Tensor, 2> tensors = {};  ///< undefined: on another rank
};

/// A tensor of the whole model, and who has it.
struct WholeTensor {
  std::string name;
  int rank = 0;
  std::vector<std::int64_t> sizes;
  torch::ScalarType type = torch::kFloat32;
  bool is_parameter = true;
};

/// Collective. All ranks' tensors, in the layers' order.
std::vector<WholeTensor> whole_tensors(const Pipeline& pipeline);

/// Where the layer that has this tensor stands among all.
std::size_t place_of_layer(const std::string& tensor, const std::vector<std::string>& layers);

/// `from` sends `tensor`, and `to` receives into its own, which is contiguous; of other ranks it may be undefined. Nothing moves within
/// a rank.
void hand_over(const Group& group, const torch::Tensor& tensor, int from, int to);

/// Activations and gradients have 0 and 1.
inline constexpr int tie_tag = 2, state_tag = 3;

}  // namespace lockstep
