#include "lockstep/train/replicas/model_tensors.h"

#include <ATen/MemoryOverlap.h>

#include <set>

#include "lockstep/base/error.h"
#include "lockstep/train/tensor/host_array.h"
#include "lockstep/train/tensor/tensor_bytes.h"

namespace lockstep {

std::vector<NamedTensor> tensors_of(const torch::nn::Module& module) {
  std::vector<NamedTensor> tensors;
  for (const auto& item : module.named_parameters()) {
    if (item.value().defined()) tensors.push_back({item.key(), item.value(), true});
  }
  for (const auto& item : module.named_buffers()) {
    if (item.value().defined()) tensors.push_back({item.key(), item.value(), false});
  }
  return tensors;
}

std::vector<NamedTensor> buffers_of(const torch::nn::Module& module) {
  std::vector<NamedTensor> buffers;
  for (const auto& item : module.named_buffers()) {
    if (item.value().defined()) buffers.push_back({item.key(), item.value().variable_data(), false});
  }
  return buffers;
}

void require_averageable(const NamedTensor& item) {
  require_array(item.tensor, item.label());
  if (at::has_internal_overlap(item.tensor) == at::MemOverlap::Yes) {
    throw Error(ErrorCode::unsupported,
                item.label() + " is " + describe(item.tensor) +
                    ", elements of which are one in memory (an expanded view?), so that "
                    "they cannot change each on its own; register its .clone()");
  }
  if (!item.is_parameter || !item.tensor.requires_grad()) return;
  if (item.tensor.is_floating_point() && reducible_dtype(item.tensor.scalar_type())) return;
  throw Error(ErrorCode::unsupported,
              item.label() + " is " + describe(item.tensor) +
                  "; only gradients of type f16, bf16, f32 and f64 have an average here");
}

std::vector<NamedTensor> distinct_parameters(std::span<const NamedTensor> tensors, bool trainable) {
  std::set<const void*> seen;
  std::vector<NamedTensor> distinct;
  for (const auto& item : tensors) {
    if (!item.is_parameter || item.tensor.requires_grad() != trainable) continue;
    if (seen.insert(item.tensor.unsafeGetTensorImpl()).second) distinct.push_back(item);
  }
  return distinct;
}

void require_frozen(std::span<const NamedTensor> frozen, const std::string& who) {
  for (const NamedTensor& item : frozen) {
    if (item.tensor.requires_grad())
      throw_invalid_argument(who + ": " + item.label() +
                             " wants a gradient, and wanted none when this was made: make another one");
  }
}

}  // namespace lockstep
