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

/// Autograd takes a gradient as it is only if it is laid out like its parameter.
torch::Tensor make_place(const Bucket& bucket, const BucketPlan::Slot& slot, const torch::Tensor& like) {
  const auto keep_alive = [memory = bucket.keep_alive()](void*) {};
  void* const data = bucket.slot_data(slot);
  const auto options = torch::dtype(like.scalar_type());
  if (like.is_non_overlapping_and_dense())
    return torch::from_blob(data, like.sizes(), like.strides(), keep_alive, options);
  return torch::from_blob(data, like.sizes(), keep_alive, options);
}

/// The same in a bucket on a GPU.
torch::Tensor make_place(const torch::Tensor& flat, const BucketPlan::Slot& slot, const torch::Tensor& like) {
  const auto begin = static_cast<std::int64_t>(slot.begin);
  if (like.is_non_overlapping_and_dense()) return flat.as_strided(like.sizes(), like.strides(), begin);
  return flat.narrow(0, begin, like.numel()).view(like.sizes());
}

torch::Tensor flat_view(const Bucket& bucket, torch::ScalarType type) {
  return torch::from_blob(
      bucket.bytes().data(), {static_cast<std::int64_t>(bucket.plan().elements)},
      [memory = bucket.keep_alive()](void*) {}, type);
}

}  // namespace

bool is_laid_out_as(const torch::Tensor& gradient, const torch::Tensor& place) {
  return gradient.layout() == torch::kStrided && gradient.device() == place.device() &&
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
  gpu_ = gpu_of_all();
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
  // Their memory is libtorch's again, which knows nothing of the streams that have used it.
  if (gpu_ && !buckets_.empty()) c10::impl::VirtualGuardImpl(gpu_->type()).synchronizeDevice(gpu_->index());
  buckets_.clear();
  for (Gradient& gradient : gradients_) gradient.place = {};
  for (auto& plan : plan_buckets(sizes, dense, limits_)) {
    const std::size_t number = buckets_.size();
    Filled& made =
        buckets_.emplace_back(gpu_ ? make_on_gpu(std::move(plan)) : make_in_main_memory(std::move(plan)));
    const auto& slots = made.plan().slots;
    for (std::size_t slot = 0; slot < slots.size(); ++slot) {
      const std::size_t parameter = slots[slot].parameter;
      const torch::Tensor& like = parameters_[parameter].tensor;
      gradients_[parameter].place = {
          number, slot,
          gpu_ ? make_place(made.flat, slots[slot], like) : make_place(*made.bucket, slots[slot], like)};
    }
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

GradientBuckets::Filled GradientBuckets::make_on_gpu(BucketPlan plan) const {
  const torch::ScalarType type = gradients_[plan.slots.front().parameter].type;
  const std::size_t bytes = plan.elements * size_of(plan.dtype);
  torch::Tensor flat;
  try {
    flat = tensor_for_calls(group_, *gpu_, {static_cast<std::int64_t>(plan.elements)}, type).zero_();
  } catch (const c10::OutOfMemoryError& error) {
    throw Error(ErrorCode::system, c10::str("the gradients' bucket of ", bytes, " bytes on ", *gpu_, ": ",
                                            error.what_without_backtrace(),
                                            "; gradients take as much memory as the model's parameters"));
  }
  return {.on_gpu = std::move(plan), .flat = std::move(flat)};
}

GradientBuckets::Filled GradientBuckets::make_in_main_memory(BucketPlan plan) const {
  const bool has_devices =
      std::ranges::any_of(gradients_, [](const Gradient& gradient) { return !gradient.device.is_cpu(); });
  const torch::ScalarType type = gradients_[plan.slots.front().parameter].type;
  Bucket memory(group_, std::move(plan), has_devices);
  auto flat = flat_view(memory, type);
  Filled made{.bucket = std::move(memory), .flat = std::move(flat)};
  if (has_devices) made.lock.emplace(made.bucket->bytes());
  return made;
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
  for (const Filled& one : buckets_) sum += one.flat.nbytes();
  return sum;
}

void GradientBuckets::put(std::size_t parameter, const torch::Tensor& gradient) {
  const Place& place = place_of(parameter);
  buckets_[place.bucket].coming.copy(place.tensor, gradient);
}

void GradientBuckets::take_out(std::size_t parameter, bool is_new) {
  torch::Tensor& gradient = parameters_[parameter].tensor.mutable_grad();
  const torch::Tensor& place = place_of(parameter).tensor;
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
