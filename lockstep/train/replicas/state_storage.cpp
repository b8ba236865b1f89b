#include "lockstep/train/replicas/state_storage.h"

#include <algorithm>
#include <cstddef>
#include <map>

#include "lockstep/base/error.h"
#include "lockstep/train/optimizer/update_rule.h"
#include "lockstep/train/tensor/tensor_bytes.h"

namespace lockstep {
namespace {

using torch::optim::Optimizer;

class WholeStorage final : public StateStorage {
 public:
  bool is_sharded() const override { return false; }
  bool has_all_gradients(const Optimizer& /*optimizer*/) const override { return true; }
  void gather(const Optimizer& /*optimizer*/) const override {}

  std::vector<ParameterSlice> slices(const Optimizer& optimizer,
                                     std::span<const NamedTensor> tensors) const override {
    std::map<const void*, const NamedTensor*> items;
    for (const auto& item : tensors) items.emplace(item.tensor.unsafeGetTensorImpl(), &item);
    std::vector<ParameterSlice> slices;
    for (const auto& group : optimizer.param_groups()) {
      for (const auto& parameter : group.params()) {
        const auto found = items.find(parameter.unsafeGetTensorImpl());
        if (found == items.end()) {
          throw_invalid_argument("the optimizer has a parameter, " + describe(parameter) +
                                 ", that is not one of the module's; sharded state is found by name");
        }
        slices.push_back({*found->second, 0, static_cast<std::size_t>(parameter.numel())});
      }
    }
    return slices;
  }

  std::vector<SliceState> slice_states(const Optimizer& /*optimizer*/) const override {
    throw_invalid_argument("CheckpointOptions::sharded is for a ShardedOptimizer; save whole");
  }

  void restore(Optimizer& optimizer, std::span<const SliceState> states) const override {
    optimizer.state().clear();
    std::size_t next = 0;
    for (const auto& group : optimizer.param_groups()) {
      for (const auto& parameter : group.params()) {
        const SliceState& kept = states[next++];
        if (state_arrays(group.options()) == 0 || !kept.arrays[0].defined()) continue;
        StateArrays arrays;
        for (std::size_t array = 0; array < state_arrays(group.options()); ++array)
          arrays[array] =
              in_order(kept.arrays[array], parameter.sizes(), order_of(parameter)).to(parameter.device());
        optimizer.state()[parameter.unsafeGetTensorImpl()] = make_state(group.options(), arrays, kept.steps);
      }
    }
  }
};

class ShardedStorage final : public StateStorage {
 public:
  bool is_sharded() const override { return true; }
  bool has_all_gradients(const Optimizer& optimizer) const override {
    return std::ranges::all_of(state_of(optimizer).slices(), [](const ParameterSlice& slice) {
      return slice.elements == static_cast<std::size_t>(slice.parameter.tensor.numel());
    });
  }
  void gather(const Optimizer& optimizer) const override { state_of(optimizer).gather_state(); }
  std::vector<ParameterSlice> slices(const Optimizer& optimizer,
                                     std::span<const NamedTensor> /*tensors*/) const override {
    return state_of(optimizer).slices();
  }
  std::vector<SliceState> slice_states(const Optimizer& optimizer) const override {
    return state_of(optimizer).slice_states();
  }
  void restore(Optimizer& optimizer, std::span<const SliceState> states) const override {
    dynamic_cast<ShardedState&>(optimizer).restore_slices(states);
  }

 private:
  static const ShardedState& state_of(const Optimizer& optimizer) {
    return dynamic_cast<const ShardedState&>(optimizer);
  }
};

}  // namespace

const StateStorage& storage_of(const Optimizer& optimizer) {
  static const WholeStorage whole;
  static const ShardedStorage sharded;
  if (dynamic_cast<const ShardedState*>(&optimizer) != nullptr) return sharded;
  return whole;
}

}  // namespace lockstep
