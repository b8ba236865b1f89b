#include "lockstep/train/sharded/flat_model.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/group/collectives.h"
#include "lockstep/train/tensor/tensor_bytes.h"

namespace lockstep {
namespace {

std::vector<GradientSize> sizes_of(const std::vector<FlatModel::Parameter>& parameters) {
  std::vector<GradientSize> sizes;
  for (const auto& [item, family, position, data] : parameters) {
    sizes.push_back(
        {static_cast<std::size_t>(item.tensor.numel()), reducible_dtype(item.tensor.scalar_type()).value()});
  }
  return sizes;
}

}  // namespace

FlatModel::FlatModel(const Group& group, std::vector<NamedTensor> trainable) {
  const torch::NoGradGuard no_grad;
  for (NamedTensor& item : trainable) parameters_.push_back({std::move(item)});
  for (FlatLayout& layout : plan_flat(sizes_of(parameters_))) {
    Family& family = families_.emplace_back();
    family.dtype = layout.dtype;
    family.slice = slice_of(layout, group.rank(), group.size());
    family.segments = segments_in(layout, family.slice);
    family.memory = std::make_shared<SharedBlock>(group, layout.elements * size_of(layout.dtype));
    for (const auto& [number, place] : layout.entries) {
      parameters_[number].family = families_.size() - 1;
      parameters_[number].position = place.begin;
    }
    family.layout = std::move(layout);
  }
  // Each rank brings its own slice, so that the pages are near the core that will work on them.
  const bool is_shared = shares_memory(group);
  for (const Family& family : families_) {
    const auto segments =
        is_shared ? family.segments : segments_in(family.layout, {0, family.layout.elements});
    for (const Segment& segment : segments) {
      const torch::Tensor& tensor = parameters_[segment.parameter].item.tensor;
      const torch::Tensor dense = tensor.is_non_overlapping_and_dense() ? tensor : tensor.contiguous();
      const auto* const source = static_cast<const std::byte*>(dense.const_data_ptr());
      std::memcpy(family.at(segment.position), source + segment.begin * size_of(family.dtype),
                  segment.elements * size_of(family.dtype));
    }
  }
  barrier(group).wait();
  for (Parameter& parameter : parameters_) {
    const auto type = parameter.item.tensor.scalar_type();
    parameter.item.tensor.set_data(view(parameter, families_[parameter.family].memory, type));
    parameter.data = parameter.item.tensor.const_data_ptr();
  }
}

FlatModel::~FlatModel() {
  const torch::NoGradGuard no_grad;
  for (Parameter& parameter : parameters_) {
    if (parameter.item.tensor.const_data_ptr() != parameter.data) continue;
    try {
      parameter.item.tensor.set_data(parameter.item.tensor.detach().clone());
    } catch (const std::exception&) {
      continue;  // no memory: it stays where it is, and keeps that alive
    }
  }
}

torch::Tensor FlatModel::view(const Parameter& parameter, const std::shared_ptr<SharedBlock>& array,
                              torch::ScalarType type) const {
  const torch::Tensor& like = parameter.item.tensor;
  void* const data = array->bytes().data() + parameter.position * torch::elementSize(type);
  const auto options = torch::TensorOptions().dtype(type);
  const auto keep_alive = [array](void*) {};
  if (like.is_non_overlapping_and_dense())
    return torch::from_blob(data, like.sizes(), like.strides(), keep_alive, options);
  return torch::from_blob(data, like.sizes(), keep_alive, options);
}

void FlatModel::require_in_place() const {
  for (const auto& [item, family, position, data] : parameters_) {
    if (item.tensor.const_data_ptr() == data) continue;
    throw_invalid_argument("parameter " + item.name + " is " + describe(item.tensor) +
                           " and no longer where this optimizer had put it; convert, resize and replace "
                           "parameters before the optimizer is made");
  }
}

void FlatModel::note_changes() const {
  for (const Parameter& parameter : parameters_) parameter.item.tensor.unsafeGetTensorImpl()->bump_version();
}

}  // namespace lockstep
