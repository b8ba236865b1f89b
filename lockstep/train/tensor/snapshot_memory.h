// Copies of tensors that training goes on to change while they are written to a file. Each snapshot takes the
// memory of the one before, so that only the first has to get it from the system.
#pragma once

#include <torch/torch.h>

#include <cstddef>
#include <memory>
#include <vector>

namespace lockstep {

/// Ordinary memory of its own, also while a SharedHeap lives. Thread safety: none.
class SnapshotMemory {
 public:
  /// Begins a snapshot: copies that were made before are over. Where it has the same tensors in the same
  /// order, it allocates nothing.
  void begin() { next_ = 0; }

  /// A copy in main memory, row-major. Valid until begin(), or the end of this.
  torch::Tensor row_major(const torch::Tensor& tensor);
  /// The same, in the order in which the tensor's elements lie, if they have no gaps.
  torch::Tensor as_it_lies(const torch::Tensor& tensor);

 private:
  struct Block {
    std::unique_ptr<std::byte[]> bytes;
    std::size_t size = 0;
  };
  std::byte* take(std::size_t bytes);

  std::vector<Block> blocks_;
  std::size_t next_ = 0;
};

}  // namespace lockstep
