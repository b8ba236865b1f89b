#include "lockstep/train/sharded/flat_model.h"

#include <algorithm>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/group/collectives.h"
#include "lockstep/train/tensor/gradient_layout.h"
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
  if (!parameters_.empty()) device_ = parameters_[0].item.tensor.device();
  is_shared_ = device_.is_cpu() && shares_memory(group);
  for (FlatLayout& layout : plan_flat(sizes_of(parameters_), device_.is_cpu() ? 1 : group.size())) {
    Family& family = families_.emplace_back();
    family.dtype = layout.dtype;
    family.type = parameters_[layout.entries[0].parameter].item.tensor.scalar_type();
    family.slice = slice_of(layout, group.rank(), group.size());
    family.segments = segments_in(layout, family.slice);
    family.memory = std::make_shared<FlatArray>(group, device_, family.type, layout.elements);
    for (const auto& [number, place] : layout.entries) {
      parameters_[number].family = families_.size() - 1;
      parameters_[number].position = place.begin;
    }
    family.layout = std::move(layout);
  }
  // Each rank brings its own slice, so that the pages are near the core that will work on them.
  for (const Family& family : families_) {
    const auto segments =
        is_shared_ ? family.segments : segments_in(family.layout, {0, family.layout.elements});
    for (const Segment& segment : segments) {
      const torch::Tensor whole = in_memory_order(parameters_[segment.parameter].item.tensor);
      family.memory->part({segment.position, segment.elements})
          .copy_(whole.narrow(0, static_cast<std::int64_t>(segment.begin),
                              static_cast<std::int64_t>(segment.elements)));
    }
  }
  barrier(group).wait();
  for (Parameter& parameter : parameters_) {
    parameter.item.tensor.set_data(
        families_[parameter.family].memory->view(parameter.position, parameter.item.tensor));
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
