#include "lockstep/train/checkpoint/optimizer_copy.h"

#include <algorithm>
#include <typeinfo>
#include <utility>
#include <vector>

#include "lockstep/train/optimizer/fused_optimizer.h"
#include "lockstep/train/replicas/state_storage.h"

namespace lockstep {
namespace {

using torch::optim::Optimizer;

std::vector<torch::Tensor*> arrays_in(torch::optim::SGDParamState& state) {
  return {&state.momentum_buffer()};
}
template <class AdamState>
std::vector<torch::Tensor*> arrays_in(AdamState& state) {
  return {&state.exp_avg(), &state.exp_avg_sq(), &state.max_exp_avg_sq()};
}

/// Not what others have derived from it, which may save more.
template <class Kind>
bool is_saved_as(const Optimizer& optimizer) {
  const auto& type = typeid(optimizer);
  return type == typeid(Kind) || type == typeid(FusedOptimizer<Kind>) ||
         (storage_of(optimizer).is_sharded() && dynamic_cast<const Kind*>(&optimizer) != nullptr);
}

template <class Kind, class Options>
std::unique_ptr<Optimizer> made_like(const Optimizer& optimizer, const ParameterGroups& groups) {
  std::vector<torch::optim::OptimizerParamGroup> without_options;
  for (const auto& group : groups) without_options.emplace_back(group.params());
  auto made = std::make_unique<Kind>(without_options, Options(1e-3));
  for (std::size_t i = 0; i < groups.size(); ++i)
    made->param_groups()[i].set_options(optimizer.param_groups()[i].options().clone());
  return made;
}

template <class State>
std::unique_ptr<Optimizer> with_state_of(const Optimizer& optimizer, SnapshotMemory& memory) {
  auto copy = optimizer_like(optimizer, optimizer.param_groups());
  for (const auto& [parameter, state] : optimizer.state()) {
    auto kept = state->clone();
    for (torch::Tensor* const array : arrays_in(static_cast<State&>(*kept))) {
      if (!array->defined()) continue;
      if (array->layout() != torch::kStrided) return nullptr;
      *array = memory.as_it_lies(*array);
    }
    copy->state()[parameter] = std::move(kept);
  }
  return copy;
}

}  // namespace

std::unique_ptr<Optimizer> copy_of(const Optimizer& optimizer, SnapshotMemory& memory) {
  using namespace torch::optim;
  if (is_saved_as<SGD>(optimizer)) return with_state_of<SGDParamState>(optimizer, memory);
  if (is_saved_as<Adam>(optimizer)) return with_state_of<AdamParamState>(optimizer, memory);
  if (is_saved_as<AdamW>(optimizer)) return with_state_of<AdamWParamState>(optimizer, memory);
  return nullptr;
}

std::unique_ptr<Optimizer> optimizer_like(const Optimizer& optimizer, const ParameterGroups& groups) {
  using namespace torch::optim;
  if (is_saved_as<SGD>(optimizer)) return made_like<SGD, SGDOptions>(optimizer, groups);
  if (is_saved_as<Adam>(optimizer)) return made_like<Adam, AdamOptions>(optimizer, groups);
  if (is_saved_as<AdamW>(optimizer)) return made_like<AdamW, AdamWOptions>(optimizer, groups);
  return nullptr;
}

}  // namespace lockstep
