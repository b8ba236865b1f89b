#include "lockstep/train/data_parallel/gradient_buckets.h"

#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <array>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/group/collectives.h"
#include "lockstep/group/gpu_calls.h"
#include "lockstep/train/tensor/arena_tensor.h"
#include "lockstep/train/tensor/gpu_place.h"
#include "lockstep/train/tensor/tensor_bytes.h"

namespace lockstep {
namespace {

// Gradients that are averaged while they are in a core's cache yet; a bucket costs a few microseconds.
constexpr std::size_t in_place_cap_bytes = std::size_t{4} << 20;

/// Autograd takes a gradient as it is only if it is laid out like its parameter.
std::vector<std::int64_t> strides_of_place(const torch::Tensor& like) {
  return (like.is_non_overlapping_and_dense() ? like.strides()
                                              : torch::empty(like.sizes(), torch::kMeta).strides())
      .vec();
}

torch::Tensor flat_view(const Bucket& bucket, torch::ScalarType type) {
  return torch::from_blob(
      bucket.bytes().data(), {static_cast<std::int64_t>(bucket.bytes().size() / torch::elementSize(type))},
      [memory = bucket.keep_alive()](void*) {}, type);
}

}  // namespace

GradientBuckets::GradientBuckets(Group group, std::vector<NamedTensor> parameters,
                                 const std::vector<char>& sparse, const BucketLimits& limits, bool in_place)
    : group_(std::move(group)), parameters_(std::move(parameters)), limits_(limits), in_place_(in_place) {
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const torch::Tensor& tensor = parameters_[i].tensor;
    gradients_.push_back({.type = tensor.scalar_type(),
                          .sizes = tensor.sizes().vec(),
                          .strides = strides_of_place(tensor),
                          .device = tensor.device(),
                          .is_sparse = sparse[i] != 0});
  }
  gpu_ = gpu_of_all();
  in_place_ =
      in_place && std::ranges::all_of(gradients_, [](const Gradient& one) { return one.device.is_cpu(); });
  const bool are_default =
      limits_.first_bytes == BucketLimits().first_bytes && limits_.cap_bytes == BucketLimits().cap_bytes;
  if (in_place_ && are_default) limits_.cap_bytes = in_place_cap_bytes;
  make(backward_order(parameters_.size()));
}

GradientBuckets::~GradientBuckets() {
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    try {
      if (lies_in_place(i)) parameters_[i].tensor.mutable_grad() = tensor_of(i).clone();
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
  // Their memory is libtorch's again, which knows nothing of the streams that have used it.
  if (gpu_ && !buckets_.empty()) c10::impl::VirtualGuardImpl(gpu_->type()).synchronizeDevice(gpu_->index());
  buckets_.clear();
  for (Gradient& gradient : gradients_) {
    gradient.place = {};
    gradient.tensor = torch::Tensor();
  }
  for (auto& plan : plan_buckets(sizes, dense, limits_)) {
    const std::size_t number = buckets_.size();
    Filled& made = buckets_.emplace_back(Filled{.plan = std::move(plan)});
    for (std::size_t slot = 0; slot < made.plan.slots.size(); ++slot)
      gradients_[made.plan.slots[slot].parameter].place = {number, slot};
    if (!in_place_) give_memory(made);
  }
}

void GradientBuckets::give_memory(Filled& bucket) {
  if (gpu_) {
    bucket.flat = make_on_gpu(bucket.plan);
  } else {
    make_in_main_memory(bucket);
  }
  for (const BucketPlan::Slot& slot : bucket.plan.slots) {
    Gradient& of = gradients_[slot.parameter];
    if (gpu_) {
      of.tensor = bucket.flat.as_strided(of.sizes, of.strides, static_cast<std::int64_t>(slot.begin));
    } else {
      of.tensor = torch::from_blob(
          bucket.bucket->slot_data(slot), of.sizes, of.strides,
          [memory = bucket.bucket->keep_alive()](void*) {}, of.type);
    }
  }
}

const torch::Tensor& GradientBuckets::tensor_of(std::size_t parameter) {
  const Gradient& gradient = gradients_[parameter];
  if (!gradient.tensor.defined()) give_memory(buckets_[gradient.place.bucket]);
  return gradient.tensor;
}

bool GradientBuckets::takes(std::size_t parameter, const torch::Tensor& gradient) const {
  const Gradient& of = gradients_[parameter];
  return !of.is_sparse && gradient.layout() == torch::kStrided &&
         gradient.device() == (gpu_ ? of.device : torch::Device(torch::kCPU)) &&
         gradient.scalar_type() == of.type && gradient.sizes() == torch::IntArrayRef(of.sizes);
}

bool GradientBuckets::is_laid_out_as_place(std::size_t parameter, const torch::Tensor& gradient) const {
  return takes(parameter, gradient) &&
         gradient.strides() == torch::IntArrayRef(gradients_[parameter].strides);
}

void GradientBuckets::clear() {
  for (Filled& bucket : buckets_) {
    if (!bucket.flat.defined()) give_memory(bucket);
    bucket.flat.zero_();
  }
}

/// Where all gradients are on one, and the group's calls can be, too.
std::optional<torch::Device> GradientBuckets::gpu_of_all() const {
  if (gradients_.empty()) return std::nullopt;
  const torch::Device device = gradients_.front().device;
  const bool are_here = std::ranges::all_of(gradients_, [&](const Gradient& gradient) {
    return gradient.device == device && gradient.device.type() == gpu_kind && !gradient.is_sparse &&
           can_reduce_on_gpu(reducible_dtype(gradient.type).value(), ReduceOp::average);
  });
  std::array<int, 1> are_on_all{are_here ? 1 : 0};  // a model may be on one GPU here and on two there
  all_reduce(group_, are_on_all, ReduceOp::min).wait();
  return are_on_all[0] != 0 && stays_on_gpu(group_, device) ? std::optional(device) : std::nullopt;
}

bool GradientBuckets::has_arrived(std::size_t bucket) {
  DeviceCopies& coming = buckets_[bucket].coming;
  if (!gpu_) return coming.are_over();
  coming.join(*gpu_);
  return true;
}

void GradientBuckets::wait_for(std::size_t bucket) {
  if (!gpu_) buckets_[bucket].coming.wait();
}

torch::Tensor GradientBuckets::make_on_gpu(const BucketPlan& plan) const {
  const torch::ScalarType type = gradients_[plan.slots.front().parameter].type;
  const std::size_t bytes = plan.elements * size_of(plan.dtype);
  try {
    return tensor_for_calls(group_, *gpu_, {static_cast<std::int64_t>(plan.elements)}, type).zero_();
  } catch (const c10::OutOfMemoryError& error) {
    throw Error(ErrorCode::system, c10::str("the gradients' bucket of ", bytes, " bytes on ", *gpu_, ": ",
                                            error.what_without_backtrace(),
                                            "; gradients take as much memory as the model's parameters"));
  }
}

void GradientBuckets::make_in_main_memory(Filled& bucket) const {
  const bool has_devices =
      std::ranges::any_of(gradients_, [](const Gradient& gradient) { return !gradient.device.is_cpu(); });
  const torch::ScalarType type = gradients_[bucket.plan.slots.front().parameter].type;
  bucket.bucket.emplace(group_, bucket.plan, has_devices);
  bucket.flat = flat_view(*bucket.bucket, type);
  if (has_devices) bucket.lock.emplace(bucket.bucket->bytes());
}

void GradientBuckets::rebuild(std::span<const std::size_t> order) {
  std::vector<std::size_t> moving;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (lies_in_place(i)) moving.push_back(i);
  }
  make(order);
  for (const std::size_t i : moving) {
    torch::Tensor& gradient = parameters_[i].tensor.mutable_grad();
    tensor_of(i).copy_(gradient);
    gradient = tensor_of(i).detach();
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
  const torch::Tensor& place = gradients_[parameter].tensor;
  return place.defined() && gradient.defined() && is_laid_out_as_place(parameter, gradient) &&
         gradient.data_ptr() == place.data_ptr();
}

std::size_t GradientBuckets::bytes() const {
  std::size_t sum = 0;
  for (const Filled& one : buckets_) sum += one.plan.elements * size_of(one.plan.dtype);
  return sum;
}

void GradientBuckets::put(std::size_t parameter, const torch::Tensor& gradient) {
  const torch::Tensor& place = tensor_of(parameter);
  buckets_[place_of(parameter).bucket].coming.copy(place, gradient);
}

void GradientBuckets::take_out(std::size_t parameter, bool is_new) {
  torch::Tensor& gradient = parameters_[parameter].tensor.mutable_grad();
  const torch::Tensor& place = tensor_of(parameter);
  const bool keeps_its_memory = gradient.defined() && !is_new;
  if (gpu_) {  // in the order of the stream
    if (keeps_its_memory) {
      gradient.copy_(place);
    } else {
      gradient = place.detach();
    }
  } else if (keeps_its_memory) {
    going_.copy(gradient, place);
  } else {
    // In main memory it is the place itself.
    gradient = going_.copied_to(gradients_[parameter].device, place.detach());
  }
}

}  // namespace lockstep
