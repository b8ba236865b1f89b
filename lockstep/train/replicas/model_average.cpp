#include "lockstep/train/replicas/model_average.h"

#include <set>
#include <sstream>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/group/collectives.h"
#include "lockstep/train/replicas/broadcast_tensors.h"
#include "lockstep/train/replicas/model_tensors.h"
#include "lockstep/train/replicas/named_tensor.h"
#include "lockstep/train/replicas/same_facts.h"
#include "lockstep/train/tensor/gpu_place.h"
#include "lockstep/train/tensor/host_array.h"
#include "lockstep/train/tensor/tensor_bytes.h"

namespace lockstep {
namespace {

/// Each once: a tensor that is registered under two names has one value.
std::vector<NamedTensor> distinct_tensors(const torch::nn::Module& module) {
  std::set<const void*> seen;
  std::vector<NamedTensor> distinct;
  for (auto& item : tensors_of(module)) {
    if (seen.insert(item.tensor.unsafeGetTensorImpl()).second) distinct.push_back(std::move(item));
  }
  return distinct;
}

bool is_averaged(const torch::Tensor& tensor) { return tensor.is_floating_point() || tensor.is_complex(); }

void average(const Group& group, const NamedTensor& item) {
  const auto dtype = reducible_dtype(item.tensor.scalar_type());
  if (!dtype) {
    throw Error(ErrorCode::unsupported, item.label() + " is " + describe(item.tensor) +
                                            ", a type that has no average here: convert it");
  }
  say_leaves_gpu(group, item.tensor.device(), "models are averaged there");
  const HostArray array(item.tensor.detach(), item.label(), HostArray::Use::both);
  all_reduce_bytes(group, array.bytes(), array.bytes(), {.dtype = *dtype, .op = ReduceOp::average}).wait();
  array.put_back();
}

}  // namespace

void average_tensors(const Group& group, std::span<const NamedTensor> tensors) {
  std::vector<NamedTensor> others;
  for (const NamedTensor& item : tensors) {
    if (is_averaged(item.tensor))
      average(group, item);
    else
      others.push_back(item);
  }
  broadcast_tensors(group, others);
}

void average_models(const Group& group, const torch::nn::Module& module) {
  if (group.size() == 1) return;
  const torch::NoGradGuard no_grad;
  const auto tensors = distinct_tensors(module);
  require_same_facts(group, facts_of(tensors), "Build the same model on every rank");
  average_tensors(group, tensors);
}

/// What the model was. Ends by being it again.
struct MovingAverage::Swap {
  explicit Swap(const std::vector<Entry>& entries) {
    const torch::NoGradGuard no_grad;
    for (const auto& [model, average] : entries) before.emplace_back(model, model.detach().clone());
    for (const auto& [model, average] : entries) model.detach().copy_(average);
  }
  Swap(const Swap&) = delete;
  Swap& operator=(const Swap&) = delete;
  ~Swap() {
    const torch::NoGradGuard no_grad;
    for (const auto& [model, value] : before) model.detach().copy_(value);
  }

  std::vector<std::pair<torch::Tensor, torch::Tensor>> before;
};

MovingAverage::MovingAverage(const torch::nn::Module& module, double decay) : decay_(decay) {
  if (!(decay >= 0 && decay < 1)) {
    std::ostringstream found;
    found << "a moving average's decay is at least 0 and less than 1, found " << decay;
    throw_invalid_argument(found.str());
  }
  const torch::NoGradGuard no_grad;
  for (const NamedTensor& item : distinct_tensors(module)) {
    if (!is_averaged(item.tensor)) continue;
    const bool is_half = item.tensor.is_floating_point() && item.tensor.element_size() <= 2;
    const torch::Tensor value = item.tensor.detach();
    entries_.push_back({item.tensor, is_half ? value.to(torch::kFloat32) : value.clone()});
  }
}

MovingAverage::~MovingAverage() = default;

void MovingAverage::require_out() const {
  if (!swap_.expired())
    throw_invalid_argument("a moving average is swapped in: let what swap_in() returned go first");
}

void MovingAverage::update() {
  require_out();
  const torch::NoGradGuard no_grad;
  for (auto& [model, average] : entries_) average.lerp_(model.detach().to(average.scalar_type()), 1 - decay_);
}

std::shared_ptr<void> MovingAverage::swap_in() {
  require_out();
  auto swap = std::make_shared<Swap>(entries_);
  swap_ = swap;
  return swap;
}

}  // namespace lockstep
