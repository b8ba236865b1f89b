#include "lockstep/train/replicas/sparse_gradients.h"

#include <set>

namespace lockstep {

std::vector<char> sparse_gradients(const torch::nn::Module& module, std::span<const NamedTensor> tensors) {
  std::set<const void*> weights;
  const auto look_at = [&](const torch::nn::Module& part) {
    if (const auto* embedding = part.as<torch::nn::EmbeddingImpl>()) {
      if (embedding->options.sparse()) weights.insert(embedding->weight.unsafeGetTensorImpl());
    } else if (const auto* bag = part.as<torch::nn::EmbeddingBagImpl>()) {
      if (bag->options.sparse()) weights.insert(bag->weight.unsafeGetTensorImpl());
    }
  };
  look_at(module);  // modules() would want it in a shared_ptr
  for (const auto& part : module.modules(/*include_self=*/false)) look_at(*part);
  std::vector<char> are_sparse;
  for (const auto& item : tensors) are_sparse.push_back(weights.contains(item.tensor.unsafeGetTensorImpl()));
  return are_sparse;
}

}  // namespace lockstep
