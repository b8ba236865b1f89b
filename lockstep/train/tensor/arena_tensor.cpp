#include "lockstep/train/tensor/arena_tensor.h"

#include <algorithm>

namespace lockstep {

torch::Tensor arena_tensor(const Group& group, torch::IntArrayRef shape, torch::ScalarType type) {
  const std::size_t bytes =
      static_cast<std::size_t>(c10::multiply_integers(shape)) * torch::elementSize(type);
  const auto block = std::make_shared<ArenaBlock>(group.allocate_bytes(std::max<std::size_t>(bytes, 1)));
  return torch::from_blob(
      block->bytes().data(), shape, [block](void*) {}, type);
}

torch::Tensor tensor_for_calls(const Group& group, torch::Device device, torch::IntArrayRef shape,
                               torch::ScalarType type) {
  if (device.is_cpu()) return arena_tensor(group, shape, type);
  return torch::empty(shape, torch::dtype(type).device(device));
}

}  // namespace lockstep
