#include "lockstep/train/tensor/arena_tensor.h"

#include <algorithm>

#include "lockstep/group/gpu_calls.h"
#include "lockstep/train/tensor/gpu_place.h"

namespace lockstep {

namespace {

std::size_t elements_in(torch::IntArrayRef shape) {
  return static_cast<std::size_t>(c10::multiply_integers(shape));
}

}  // namespace

torch::Tensor arena_tensor(const Group& group, torch::IntArrayRef shape, torch::ScalarType type) {
  const std::size_t bytes = elements_in(shape) * torch::elementSize(type);
  const auto block = std::make_shared<ArenaBlock>(group.allocate_bytes(std::max<std::size_t>(bytes, 1)));
  return torch::from_blob(
      block->bytes().data(), shape, [block](void*) {}, type);
}

torch::Tensor tensor_for_calls(const Group& group, torch::Device device, torch::IntArrayRef shape,
                               torch::ScalarType type) {
  if (device.is_cpu()) return arena_tensor(group, shape, type);
  const auto options = torch::dtype(type).device(device);
  const std::size_t bytes = elements_in(shape) * torch::elementSize(type);
  void* memory = nullptr;
  if (bytes == 0 || group.size() == 1 || !stays_on_gpu(group, device)) return torch::empty(shape, options);
  const auto shared = allocate_on_gpu(group, device.index(), bytes, &memory);
  if (shared == nullptr) return torch::empty(shape, options);
  return at::for_blob(memory, shape)
      .deleter([shared](void*) {})
      .options(options)
      .target_device(device)
      .make_tensor();
}

}  // namespace lockstep
