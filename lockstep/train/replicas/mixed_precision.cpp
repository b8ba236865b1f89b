#include "lockstep/train/replicas/mixed_precision.h"

#include <ATen/autocast_mode.h>

#include <algorithm>
#include <array>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/group/collectives.h"
#include "lockstep/train/replicas/state_storage.h"

namespace lockstep {
namespace {

/// Each rank of a ShardedOptimizer has gradients of its own, and would skip steps on its own.
void require_gradients_of_all(const torch::optim::Optimizer& optimizer) {
  if (storage_of(optimizer).has_all_gradients(optimizer)) return;
  throw_invalid_argument(
      "a GradientScaler without a group, for a ShardedOptimizer of several ranks: each would skip steps on "
      "its own; make it with the group, GradientScaler({}, group)");
}

}  // namespace

Autocast::Autocast(torch::ScalarType type, bool enabled, torch::DeviceType device)
    : device_(device),
      was_enabled_(at::autocast::is_autocast_enabled(device)),
      type_before_(at::autocast::get_autocast_dtype(device)) {
  at::autocast::set_autocast_dtype(device, type);
  at::autocast::set_autocast_enabled(device, enabled);
  at::autocast::increment_nesting();
}

Autocast::~Autocast() {
  if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
  at::autocast::set_autocast_enabled(device_, was_enabled_);
  at::autocast::set_autocast_dtype(device_, type_before_);
}

GradientScaler::GradientScaler(const GradientScalerOptions& options, std::optional<Group> group)
    : options_(options), group_(std::move(group)), scale_(options.initial_scale) {}

void GradientScaler::unscale(torch::optim::Optimizer& optimizer) {
  if (unscaled_.contains(&optimizer)) {
    throw_invalid_argument("this optimizer's gradients are unscaled already; call update() behind step()");
  }
  if (!group_) require_gradients_of_all(optimizer);
  const torch::NoGradGuard no_grad;
  using Kind = std::tuple<torch::DeviceType, torch::DeviceIndex, torch::ScalarType>;
  std::map<Kind, std::vector<torch::Tensor>> gradients;  // of which one call takes one
  for (const auto& group : optimizer.param_groups()) {
    for (const auto& parameter : group.params()) {
      const torch::Tensor& gradient = parameter.grad();
      if (!gradient.defined()) continue;
      const auto values = gradient.is_sparse() ? gradient._values() : gradient;
      const torch::Device device = values.device();
      gradients[{device.type(), device.index(), values.scalar_type()}].push_back(values);
    }
  }
  std::vector<torch::Tensor> infinite;
  for (const auto& [kind, tensors] : gradients) {
    const auto number = torch::dtype(torch::kFloat32).device(tensors.front().device());
    infinite.push_back(torch::zeros({1}, number));
    at::_amp_foreach_non_finite_check_and_unscale_(tensors, infinite.back(),
                                                   torch::full({}, 1 / scale_, number));
  }
  // Of all ranks: whether some gradient is infinite, whether there is any.
  std::array<float, 2> found = {0.0F, gradients.empty() ? 0.0F : 1.0F};
  for (const torch::Tensor& one : infinite) found[0] = std::max(found[0], one.item<float>());
  if (group_) all_reduce(*group_, found, ReduceOp::max).wait();
  unscaled_[&optimizer] = {.usable = found[0] == 0 && found[1] != 0};
}

bool GradientScaler::step(torch::optim::Optimizer& optimizer) {
  if (!unscaled_.contains(&optimizer)) unscale(optimizer);
  Unscaled& state = unscaled_[&optimizer];
  if (std::exchange(state.is_stepped, true)) {
    throw_invalid_argument("step() was called for this optimizer already; call update() first");
  }
  if (!state.usable) {
    ++skipped_;
    return false;
  }
  optimizer.step();
  return true;
}

void GradientScaler::update() {
  if (unscaled_.empty()) throw_invalid_argument("update() without step() before");
  const bool usable = std::ranges::all_of(unscaled_, [](const auto& item) { return item.second.usable; });
  unscaled_.clear();
  if (!usable) {
    scale_ *= options_.backoff_factor;
    good_steps_ = 0;
  } else if (++good_steps_ >= options_.growth_interval) {
    scale_ *= options_.growth_factor;
    good_steps_ = 0;
  }
}

void GradientScaler::save(torch::serialize::OutputArchive& archive) const {
  archive.write("scale", torch::tensor(scale_, torch::kFloat64));
  archive.write("good_steps", torch::tensor(good_steps_, torch::kInt64));
}

void GradientScaler::load(torch::serialize::InputArchive& archive) {
  torch::Tensor scale, good_steps;
  archive.read("scale", scale);
  archive.read("good_steps", good_steps);
  scale_ = scale.item<double>();
  good_steps_ = good_steps.item<std::int64_t>();
}

}  // namespace lockstep
