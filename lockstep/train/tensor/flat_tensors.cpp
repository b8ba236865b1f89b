#include "lockstep/train/tensor/flat_tensors.h"

#include <algorithm>

namespace lockstep {

using torch::Tensor;

FlatPlan::FlatPlan(std::span<const Tensor> like) {
  for (const Tensor& tensor : like) {
    auto array = std::ranges::find(arrays_, tensor.scalar_type(), &Array::type);
    if (array == arrays_.end()) array = arrays_.insert(arrays_.end(), {tensor.scalar_type(), 0});
    places_.push_back({static_cast<std::size_t>(array - arrays_.begin()), array->elements, tensor.numel(),
                       tensor.sizes().vec()});
    array->elements += tensor.numel();
  }
}

std::vector<Tensor> FlatPlan::views(std::span<const Tensor> arrays) const {
  std::vector<Tensor> views;
  for (const Place& place : places_)
    views.push_back(arrays[place.array].narrow(0, place.begin, place.elements).view(place.sizes));
  return views;
}

FlatTensors::FlatTensors(const FlatPlan& plan) {
  for (const FlatPlan::Array& array : plan.arrays())
    arrays.push_back(torch::empty({array.elements}, array.type));
  views = plan.views(arrays);
}

}  // namespace lockstep
