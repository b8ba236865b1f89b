#include "lockstep/train/replicas/sharded_state.h"

namespace lockstep {

std::vector<std::int64_t> order_of(const torch::Tensor& parameter) {
  if (parameter.is_contiguous() || !parameter.is_non_overlapping_and_dense()) return {};
  return parameter.strides().vec();
}

torch::Tensor in_order(const torch::Tensor& flat, torch::IntArrayRef sizes,
                       const std::vector<std::int64_t>& order) {
  return order.empty() ? flat.view(sizes) : flat.as_strided(sizes, order);
}

}  // namespace lockstep
