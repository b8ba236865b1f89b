// Modules of which each rank of a group has a part.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/group/group.h"

namespace lockstep {

/// A parameter of which each rank has a part.
struct SlicedParameter {
  std::string name;     ///< in its module: "weight"
  std::int64_t dim;     ///< in which it is cut
  std::int64_t length;  ///< of the whole one there
};

/// What ColumnParallelLinear and the like (parallel_layers.h) have in common. Making one is collective: their weights are cut from
/// those that the serial layer would have on rank 0; every rank draws as many random numbers as that does.
class SlicedModule {
 public:
  explicit SlicedModule(Group group) : group_(std::move(group)) {}
  virtual ~SlicedModule() = default;
  const Group& group() const { return group_; }
  virtual std::vector<SlicedParameter> sliced() const = 0;

 private:
  Group group_;
};

/// Of a module, and what it is made of, where that is spread over several ranks: "layer.weight" -> how it is cut.
std::map<std::string, SlicedParameter> sliced_in(const torch::nn::Module& module);

}  // namespace lockstep
