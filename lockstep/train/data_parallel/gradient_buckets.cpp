#include "lockstep/train/data_parallel/gradient_buckets.h"

#include <algorithm>
#include <utility>

#include "lockstep/train/tensor/tensor_bytes.h"

namespace lockstep {
namespace {

/// Autograd takes a gradient as it is only if it is laid out like its parameter.
torch::Tensor make_place(const Bucket& bucket, const BucketPlan::Slot& slot, const torch::Tensor& like) {
  const auto keep_alive = [memory = bucket.keep_alive()](void*) {};
  void* const data = bucket.slot_data(slot);
  const auto options = torch::dtype(like.scalar_type());
  if (like.is_non_overlapping_and_dense())
    return torch::from_blob(data, like.sizes(), like.strides(), keep_alive, options);
  return torch::from_blob(data, like.sizes(), keep_alive, options);
}

torch::Tensor flat_view(const Bucket& bucket, torch::ScalarType type) {
  return torch::from_blob(
      bucket.bytes().data(), {static_cast<std::int64_t>(bucket.plan().elements)},
      [memory = bucket.keep_alive()](void*) {}, type);
}

}  // namespace

bool is_laid_out_as(const torch::Tensor& gradient, const torch::Tensor& place) {
  return gradient.layout() == torch::kStrided && gradient.device().is_cpu() &&
         gradient.dtype() == place.dtype() && gradient.sizes() == place.sizes() &&
         gradient.strides() == place.strides();
}

GradientBuckets::GradientBuckets(Group group, std::vector<NamedTensor> parameters,
                                 const std::vector<char>& sparse, const BucketLimits& limits)
    : group_(std::move(group)), parameters_(std::move(parameters)), limits_(limits) {
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const torch::Tensor& tensor = parameters_[i].tensor;
    gradients_.push_back({.type = tensor.scalar_type(),
                          .sizes = tensor.sizes().vec(),
                          .device = tensor.device(),
                          .is_sparse = sparse[i] != 0});
  }
  make(backward_order(parameters_.size()));
}

GradientBuckets::~GradientBuckets() {
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    try {
      if (lies_in_place(i)) parameters_[i].tensor.mutable_grad() = place_of(i).tensor.clone();
    } catch (const std::exception&) {
      continue;  // no memory: the gradient stays where it is, and keeps its bucket alive
    }
  }
}

void GradientBuckets::make(std::span<const std::size_t> order) {
  std::vector<GradientSize> sizes;
  for (const Gradient& gradient : gradients_)
    sizes.push_back({static_cast<std::size_t>(c10::multiply_integers(gradient.sizes)),
                     reducible_dtype(gradient.type).value()});
  std::vector<std::size_t> dense;
  std::ranges::copy_if(order, std::back_inserter(dense), [this](auto i) { return !is_sparse(i); });
  going_.wait();
  buckets_.clear();
  for (Gradient& gradient : gradients_) gradient.place = {};
  const bool has_devices =
      std::ranges::any_of(gradients_, [](const Gradient& gradient) { return !gradient.device.is_cpu(); });
  for (auto& plan : plan_buckets(sizes, dense, limits_)) {
    const std::size_t number = buckets_.size();
    Bucket memory(group_, std::move(plan), has_devices);
    auto flat = flat_view(memory, gradients_[memory.plan().slots.front().parameter].type);
    Filled& made = buckets_.emplace_back(Filled{.bucket = std::move(memory), .flat = std::move(flat)});
    if (has_devices) made.lock.emplace(made.bucket.bytes());
    const auto& slots = made.bucket.plan().slots;
    for (std::size_t slot = 0; slot < slots.size(); ++slot) {
      const std::size_t parameter = slots[slot].parameter;
      gradients_[parameter].place = {number, slot,
                                     make_place(made.bucket, slots[slot], parameters_[parameter].tensor)};
    }
  }
}

void GradientBuckets::rebuild(std::span<const std::size_t> order) {
  std::vector<std::size_t> moving;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (lies_in_place(i)) moving.push_back(i);
  }
  make(order);
  for (const std::size_t i : moving) {
    torch::Tensor& gradient = parameters_[i].tensor.mutable_grad();
    place_of(i).tensor.copy_(gradient);
    gradient = place_of(i).tensor.detach();
  }
}

bool GradientBuckets::fits(std::size_t parameter) const {
  const torch::Tensor& tensor = parameters_[parameter].tensor;
  const Gradient& gradient = gradients_[parameter];
  return tensor.requires_grad() && tensor.scalar_type() == gradient.type &&
         tensor.device() == gradient.device && tensor.sizes() == torch::IntArrayRef(gradient.sizes);
}

bool GradientBuckets::lies_in_place(std::size_t parameter) const {
  const torch::Tensor& gradient = parameters_[parameter].tensor.grad();
  const torch::Tensor& place = place_of(parameter).tensor;
  return place.defined() && gradient.defined() && is_laid_out_as(gradient, place) &&
         gradient.data_ptr() == place.data_ptr();
}

std::size_t GradientBuckets::bytes() const {
  std::size_t sum = 0;
  for (const Filled& one : buckets_) sum += one.bucket.bytes().size();
  return sum;
}

void GradientBuckets::put(std::size_t parameter, const torch::Tensor& gradient) {
  const Place& place = place_of(parameter);
  buckets_[place.bucket].coming.copy(place.tensor, gradient);
}

void GradientBuckets::take_out(std::size_t parameter, bool is_new) {
  torch::Tensor& gradient = parameters_[parameter].tensor.mutable_grad();
  const torch::Tensor& place = place_of(parameter).tensor;
  if (gradient.defined() && !is_new) {
    going_.copy(gradient, place);
  } else {
    // In main memory it is the place itself.
    gradient = going_.copied_to(gradients_[parameter].device, place.detach());
  }
}

}  // namespace lockstep
