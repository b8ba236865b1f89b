#include "lockstep/train/step_watch.h"

#include <algorithm>
#include <cstdint>

#include "lockstep/base/error.h"
#include "lockstep/train/tensor_bytes.h"

namespace lockstep {
namespace {

constexpr std::size_t watched_bytes = 4096;
constexpr int most_changes = 1;

}  // namespace

StepWatch::StepWatch(std::span<const NamedTensor> parameters) {
  const auto bytes_of = [](const NamedTensor& item) {
    return item.tensor.numel() > 0 ? item.tensor.nbytes() : SIZE_MAX;
  };
  const auto smallest = std::ranges::min_element(parameters, {}, bytes_of);
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

}  // namespace lockstep
