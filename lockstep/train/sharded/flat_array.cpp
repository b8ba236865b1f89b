#include "lockstep/train/sharded/flat_array.h"

#include "lockstep/group/outcome.h"

namespace lockstep {

FlatArray::FlatArray(const Group& group, torch::Device device, torch::ScalarType type, std::size_t elements) {
  const auto count = static_cast<std::int64_t>(elements);
  const auto options = torch::TensorOptions().dtype(type);
  if (device.is_cpu()) {
    block_ = std::make_shared<SharedBlock>(group, elements * torch::elementSize(type));
    flat_ = torch::from_blob(
        block_->bytes().data(), {count}, [block = block_](void*) {}, options);
    return;
  }
  on_every_rank(group, [&] { flat_ = torch::zeros({count}, options.device(device)); });
}

torch::Tensor FlatArray::part(const Range& elements) const {
  return flat_.narrow(0, static_cast<std::int64_t>(elements.begin),
                      static_cast<std::int64_t>(elements.count));
}

// In main memory each has a storage of its own, which is what is saved of it.
torch::Tensor FlatArray::view(std::size_t position, const torch::Tensor& like) const {
  const auto dense = like.is_non_overlapping_and_dense() ? like : like.contiguous();
  if (!block_) return flat_.as_strided(dense.sizes(), dense.strides(), static_cast<std::int64_t>(position));
  return torch::from_blob(
      at(position), dense.sizes(), dense.strides(), [block = block_](void*) {}, flat_.options());
}

std::byte* FlatArray::at(std::size_t position) const {
  return block_->bytes().data() + position * flat_.element_size();
}

}  // namespace lockstep
