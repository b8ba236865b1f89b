#include "lockstep/train/replicas/step_watch.h"

#include <algorithm>
#include <cstdint>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/train/tensor/gradient_layout.h"

namespace lockstep {
namespace {

constexpr std::int64_t watched_elements = 1024;
constexpr int most_changes = 1;

auto smallest_of(std::span<const NamedTensor> parameters) {
  return std::ranges::min_element(parameters, {}, [](const NamedTensor& item) {
    return item.tensor.numel() > 0 ? item.tensor.nbytes() : SIZE_MAX;
  });
}

}  // namespace

StepWatch::StepWatch(std::span<const NamedTensor> parameters) {
  const auto smallest = smallest_of(parameters);
  if (smallest == parameters.end()) return;
  watched_ = smallest->tensor;
  hook_ = watched_.register_hook([this](const torch::Tensor&) { look(); });
}

StepWatch::~StepWatch() {
  if (watched_.defined()) watched_.remove_hook(hook_);
}

void StepWatch::note_step() {
  seen_ = torch::Tensor();
  changes_ = 0;
}

// The first backward after a step waits for no GPU.
void StepWatch::look() {
  const torch::NoGradGuard no_grad;
  const auto all = in_memory_order(watched_.detach());
  const auto now = all.narrow(0, 0, std::min(all.numel(), watched_elements));
  const bool has_changed = seen_.defined() && !torch::allclose(seen_, now, 0, 0, /*equal_nan=*/true);
  if (!seen_.defined() || has_changed) seen_ = now.clone();
  if (!has_changed || ++changes_ <= most_changes) return;
  changes_ = 0;
  throw_invalid_argument(
      "parameters of a ShardedOptimizer change between backwards, and not by its step(): another optimizer "
      "over them, built before, steps in its place; call step() of the ShardedOptimizer alone");
}

void StillParameters::look(std::span<const NamedTensor> parameters) {
  if (parameters.empty()) return;
  std::uint64_t versions = 0;
  for (const NamedTensor& item : parameters) versions += static_cast<std::uint64_t>(item.tensor._version());
  forwards_ = versions == versions_ ? forwards_ + 1 : 0;
  versions_ = versions;
  // Changes of data() are not counted.
  if (forwards_ == 1) seen_ = smallest_of(parameters)->tensor.detach().clone();
  if (forwards_ != most_forwards || !torch::equal(seen_, smallest_of(parameters)->tensor.detach())) return;
  log::warning("no parameter of a wrapped model changed during " + std::to_string(most_forwards) +
               " training forwards, though gradients were averaged: nothing steps them, or an optimizer over "
               "other tensors does; build it from the wrapper's parameters()");
}

}  // namespace lockstep
