#include "lockstep/train/tensor/gradient_layout.h"

namespace lockstep {

bool lies_like(const torch::Tensor& gradient, const torch::Tensor& parameter) {
  return gradient.layout() == torch::kStrided && gradient.device() == parameter.device() &&
         gradient.scalar_type() == parameter.scalar_type() && gradient.sizes() == parameter.sizes() &&
         (gradient.strides() == parameter.strides() ||
          (gradient.is_contiguous() && parameter.is_contiguous()));
}

torch::Tensor like_parameter(const torch::Tensor& gradient, const torch::Tensor& parameter) {
  if (lies_like(gradient, parameter)) return gradient;
  const auto dense = gradient.layout() == torch::kStrided ? gradient : gradient.to_dense();
  return torch::empty_strided(parameter.sizes(), parameter.strides(), parameter.options()).copy_(dense);
}

torch::Tensor in_memory_order(const torch::Tensor& tensor) {
  const auto dense = tensor.is_non_overlapping_and_dense() ? tensor : tensor.contiguous();
  return dense.as_strided({dense.numel()}, {1});
}

}  // namespace lockstep
