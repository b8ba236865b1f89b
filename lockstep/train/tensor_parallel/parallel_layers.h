// Layers whose weights are spread over the ranks of a group, for models that are too wide for one: each rank has some of the
// columns, or rows, and computes its part of the product.
// Source: Shoeybi et al. 2019, "Megatron-LM: Training Multi-Billion Parameter Language Models Using Model Parallelism".
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "lockstep/group/group.h"
#include "lockstep/train/checkpoint/state_dict.h"
#include "lockstep/train/replicas/sliced_module.h"
#include "lockstep/train/tensor/module_of.h"

namespace lockstep {

struct ColumnParallelOptions {
  bool bias = true;
  /// The output is whole on all ranks; else each has its columns, as RowParallelLinear takes them.
  bool gather_output = false;
};

/// As torch::nn::Linear(in, out): [..., in], the same on all ranks, to [..., out / size()], or whole. Each rank has
/// out / size() rows of the weight (columns of its transpose). Throws Error{invalid_argument} where size() does not divide `out`.
class ColumnParallelLinearImpl : public torch::nn::Module, public SlicedModule {
 public:
  ColumnParallelLinearImpl(std::int64_t in, std::int64_t out, const Group& group,
                           const ColumnParallelOptions& options = {});
  torch::Tensor forward(const torch::Tensor& x);
  std::vector<SlicedParameter> sliced() const override;

  torch::Tensor weight, bias;

 private:
  std::int64_t out_;
  bool gather_output_;
};
TORCH_MODULE(ColumnParallelLinear);

struct RowParallelOptions {
  bool bias = true;
  /// The input is each rank's columns, as ColumnParallelLinear gives them; else it is whole on all ranks.
  bool input_is_parallel = true;
};

/// As torch::nn::Linear(in, out): [..., in / size()] to [..., out], the same on all ranks. Cost: one all_reduce of the output,
/// in the forward.
class RowParallelLinearImpl : public torch::nn::Module, public SlicedModule {
 public:
  RowParallelLinearImpl(std::int64_t in, std::int64_t out, const Group& group,
                        const RowParallelOptions& options = {});
  torch::Tensor forward(const torch::Tensor& x);
  std::vector<SlicedParameter> sliced() const override;

  torch::Tensor weight, bias;  ///< the bias is whole on all ranks

 private:
  std::int64_t in_;
  bool input_is_parallel_;
};
TORCH_MODULE(RowParallelLinear);

/// As torch::nn::Embedding(words, width): i64 [...] to [..., width], the same on all ranks; each has some of the words, as many
/// as the others or one more. Cost: one all_reduce of the output.
class VocabParallelEmbeddingImpl : public torch::nn::Module, public SlicedModule {
 public:
  VocabParallelEmbeddingImpl(std::int64_t words, std::int64_t width, const Group& group);
  torch::Tensor forward(const torch::Tensor& indices);
  std::vector<SlicedParameter> sliced() const override;

  torch::Tensor weight;

 private:
  std::int64_t words_, first_;
};
TORCH_MODULE(VocabParallelEmbedding);

// What the templates below call.
double clip_grad_norm(const Group& group, const torch::nn::Module& module, double max_norm);
void save_whole_state_dict(const std::filesystem::path& path, const Group& group,
                           const torch::nn::Module& module);
void load_whole_state_dict(const std::filesystem::path& path, const Group& group,
                           const torch::nn::Module& module);

/// Collective: the group over which the layers are spread. Clips this rank's gradients by the norm of the whole model's, in which what
/// all ranks have counts once; returns it. As torch.nn.utils.clip_grad_norm_ of the serial model.
template <class Model>
double clip_grad_norm(const Group& group, const Model& model, double max_norm) {
  return clip_grad_norm(group, module_of(model), max_norm);
}

/// Collective: the group over which the layers are spread. Rank 0 writes the whole tensors, under the names that the serial model
/// has: files are the same for any number of ranks.
template <class Model>
void save_whole_state_dict(const std::filesystem::path& path, const Group& group, const Model& model) {
  save_whole_state_dict(path, group, module_of(model));
}
/// Collective. Rank 0 reads; each rank has its parts. Throws Error{invalid_argument}, the same on all ranks, before anything has
/// changed, where tensors are missing, unexpected, or of another shape.
template <class Model>
void load_whole_state_dict(const std::filesystem::path& path, const Group& group, const Model& model) {
  load_whole_state_dict(path, group, module_of(model));
}

}  // namespace lockstep
