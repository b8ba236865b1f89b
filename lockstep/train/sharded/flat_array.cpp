#include "lockstep/train/sharded/flat_array.h"

#include "lockstep/group/outcome.h"
#include "lockstep/group/shared_memory.h"
#include "lockstep/train/tensor/arena_tensor.h"

namespace lockstep {

FlatArray::FlatArray(const Group& group, torch::Device device, torch::ScalarType type, std::size_t elements) {
  const auto count = static_cast<std::int64_t>(elements);
  const auto options = torch::TensorOptions().dtype(type);
  if (device.is_cpu()) {
    const auto block = std::make_shared<SharedBlock>(group, elements * torch::elementSize(type));
    flat_ = torch::from_blob(
        block->bytes().data(), {count}, [block](void*) {}, options);
  } else {
    on_every_rank(group, [&] { flat_ = tensor_for_calls(group, device, {count}, type).zero_(); });
  }
}

torch::Tensor FlatArray::part(const Range& elements) const {
  return flat_.narrow(0, static_cast<std::int64_t>(elements.begin),
                      static_cast<std::int64_t>(elements.count));
}

// With a storage of its own, which is what is saved of a tensor.
torch::Tensor FlatArray::view(std::size_t position, const torch::Tensor& like) const {
  const auto dense = like.is_non_overlapping_and_dense() ? like : like.contiguous();
  return at::for_blob(at(position), dense.sizes())
      .strides(dense.strides())
      .deleter([flat = flat_](void*) {})
      .options(flat_.options())
      .target_device(flat_.device())
      .make_tensor();
}

std::byte* FlatArray::at(std::size_t position) const {
  return static_cast<std::byte*>(flat_.mutable_data_ptr()) + position * flat_.element_size();
}

}  // namespace lockstep
