// Tensors of a model one after the other in one array for each type: what is sent together lies together.
#pragma once

#include <torch/torch.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace lockstep {

/// Where tensors like these would lie.
class FlatPlan {
 public:
  explicit FlatPlan(std::span<const torch::Tensor> like);

  /// Of each array, in the order in which they come first.
  struct Array {
    torch::ScalarType type;
    std::int64_t elements = 0;
  };
  const std::vector<Array>& arrays() const { return arrays_; }

  /// The tensors as views of `arrays`, which are as planned.
  std::vector<torch::Tensor> views(std::span<const torch::Tensor> arrays) const;

 private:
  struct Place {
    std::size_t array;
    std::int64_t begin, elements;
    std::vector<std::int64_t> sizes;
  };
  std::vector<Array> arrays_;
  std::vector<Place> places_;  // of each tensor
};

/// Such arrays in main memory, with undefined values.
struct FlatTensors {
  std::vector<torch::Tensor> arrays, views;
  explicit FlatTensors(const FlatPlan& plan);
};

}  // namespace lockstep
