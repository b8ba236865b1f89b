#include "lockstep/train/tensor/snapshot_memory.h"

namespace lockstep {

torch::Tensor SnapshotMemory::row_major(const torch::Tensor& tensor) {
  const torch::NoGradGuard no_grad;
  auto copy = torch::from_blob(take(tensor.nbytes()), tensor.sizes(), torch::dtype(tensor.scalar_type()));
  return copy.copy_(tensor.detach());
}

torch::Tensor SnapshotMemory::as_it_lies(const torch::Tensor& tensor) {
  if (!tensor.is_non_overlapping_and_dense()) return row_major(tensor);
  const torch::NoGradGuard no_grad;
  auto copy = torch::from_blob(take(tensor.nbytes()), tensor.sizes(), tensor.strides(),
                               torch::dtype(tensor.scalar_type()));
  return copy.copy_(tensor.detach());
}

std::byte* SnapshotMemory::take(std::size_t bytes) {
  if (next_ == blocks_.size()) blocks_.emplace_back();
  Block& block = blocks_[next_++];
  if (block.bytes == nullptr || block.size < bytes) {
    block = {};  // first, so that there are never both
    block = {std::make_unique_for_overwrite<std::byte[]>(bytes), bytes};
  }
  return block.bytes.get();
}

}  // namespace lockstep
