// A long array of one type, in which a model's parameters, or what an optimizer keeps for them, lie one after another: in main
// memory one copy for all ranks that share it; on a GPU each rank has its own.
#pragma once

#include <torch/torch.h>

#include <cstddef>

#include "lockstep/group/group.h"
#include "lockstep/schedule/call.h"

namespace lockstep {

class FlatArray {
 public:
  /// Collective. On a GPU it begins with zeros. Throws on all ranks where one of them has no room.
  FlatArray(const Group& group, torch::Device device, torch::ScalarType type, std::size_t elements);

  /// All of it, in one dimension.
  const torch::Tensor& flat() const { return flat_; }
  torch::Tensor part(const Range& elements) const;
  /// From `position` on, in the shape and the order of `like`, which has no gaps.
  torch::Tensor view(std::size_t position, const torch::Tensor& like) const;
  std::byte* at(std::size_t position) const;

 private:
  torch::Tensor flat_;
};

}  // namespace lockstep
