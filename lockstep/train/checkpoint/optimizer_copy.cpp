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

template <class Kind, class Options, class State>
std::unique_ptr<Optimizer> copy_as(const Optimizer& optimizer, SnapshotMemory& memory) {
  std::vector<torch::optim::OptimizerParamGroup> groups;
  for (const auto& group : optimizer.param_groups()) groups.emplace_back(group.params());
  auto copy = std::make_unique<Kind>(groups, Options(1e-3));
  for (std::size_t i = 0; i < groups.size(); ++i)
    copy->param_groups()[i].set_options(optimizer.param_groups()[i].options().clone());
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
  if (is_saved_as<SGD>(optimizer)) return copy_as<SGD, SGDOptions, SGDParamState>(optimizer, memory);
  if (is_saved_as<Adam>(optimizer)) return copy_as<Adam, AdamOptions, AdamParamState>(optimizer, memory);
  if (is_saved_as<AdamW>(optimizer)) return copy_as<AdamW, AdamWOptions, AdamWParamState>(optimizer, memory);
  return nullptr;
}

}  // namespace lockstep
