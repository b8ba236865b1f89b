#include "lockstep/train/replicas/step_watch.h"

#include <algorithm>
#include <cstdint>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/train/tensor/tensor_bytes.h"

namespace lockstep {
namespace {

constexpr std::size_t watched_bytes = 4096;
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
  seen_.clear();
  changes_ = 0;
}

void StepWatch::look() {
  const auto all = elements_of(watched_);
  const auto bytes = all.first(std::min(all.size(), watched_bytes));
  const bool has_changed = !seen_.empty() && !std::ranges::equal(seen_, bytes);
  seen_.assign(bytes.begin(), bytes.end());
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
