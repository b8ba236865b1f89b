// What the ranks of a ShardedStep keep of the optimizer's state: where it lies, how state that was loaded
// comes there, and how it is handed out.
#include <algorithm>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/group/collectives.h"
#include "lockstep/group/shared_memory.h"
#include "lockstep/train/optimizer/fitting_state.h"
#include "lockstep/train/optimizer/state_of_parameter.h"
#include "lockstep/train/sharded/sharded_step.h"
#include "lockstep/train/tensor/gradient_layout.h"

namespace lockstep {

void ShardedStep::make_state(const States& states) {
  if (std::exchange(is_loaded_, false)) forget_state();
  for (std::size_t number = 0; number < family_states_.size(); ++number) {
    std::size_t arrays = 0;
    for (const auto& entry : model_.families()[number].layout.entries) {
      const ParameterOptions* options = current_[entry.parameter].options;
      if (options != nullptr) arrays = std::max(arrays, state_arrays(*options));
    }
    make_family_state(number, arrays);
  }
  for (std::size_t i = 0; i < current_.size(); ++i) take_over(i, states);
}

torch::Tensor ShardedStep::own_part(std::size_t number, const FlatArray& array) const {
  const Range& slice = model_.families()[number].slice;
  return array.part({slice.begin - family_states_[number].begin, slice.count});
}

torch::Tensor ShardedStep::part_of(const FamilyState& state, const FlatArray& array, const Segment& segment) {
  return array.part({segment.position - state.begin, segment.elements});
}

void ShardedStep::make_family_state(std::size_t number, std::size_t arrays) {
  const FlatModel::Family& family = model_.families()[number];
  FamilyState& state = family_states_[number];
  state.begin = sees_all_state_ ? 0 : family.slice.begin;
  const std::size_t elements = sees_all_state_ ? family.layout.elements : family.slice.count;
  for (std::size_t array = 0; array < arrays; ++array) {
    if (state.arrays[array]) continue;
    state.arrays[array] =
        std::make_shared<FlatArray>(group_, model_.device(), state_type(family.type), elements);
    own_part(number, *state.arrays[array]).zero_();
  }
  if (!is_half(family.dtype)) return;
  if (!state.masters)
    state.masters = std::make_shared<FlatArray>(group_, model_.device(), torch::kFloat32, elements);
  bring_masters_up_to_date(number);
}

/// A parameter may have been changed by others, as by loading it.
void ShardedStep::bring_masters_up_to_date(std::size_t number) {
  const FlatModel::Family& family = model_.families()[number];
  const FamilyState& state = family_states_[number];
  for (const Segment& segment : family.segments) {
    const torch::Tensor& tensor = model_.parameters()[segment.parameter].item.tensor;
    if (current_[segment.parameter].version == tensor._version()) continue;
    part_of(state, *state.masters, segment).copy_(family.memory->part({segment.position, segment.elements}));
  }
}

/// State that was loaded, or that libtorch's optimizer had made: this rank's part of it.
void ShardedStep::take_over(std::size_t parameter, const States& states) {
  Current& current = current_[parameter];
  const auto& [item, number, position, data] = model_.parameters()[parameter];
  const auto found = states.find(item.tensor.unsafeGetTensorImpl());
  if (current.options == nullptr || found == states.end() || state_arrays(*current.options) == 0) return;
  if (!is_state_of(item.tensor, *found->second, *current.options))
    throw_no_state_of(item.tensor, item.label(), *found->second, *current.options);
  const StateArrays arrays = arrays_of(*found->second, *current.options);
  if (!arrays[0].defined() || arrays[0].is_same(current.views[0])) return;
  const FlatModel::Family& family = model_.families()[number];
  const FamilyState& state = family_states_[number];
  const auto type = state_type(family.type);
  for (std::size_t array = 0; array < state_arrays(*current.options); ++array) {
    const torch::Tensor whole = in_memory_order(
        like_parameter(arrays[array].to(model_.device(), type),
                       item.tensor.detach().to(type, false, false, at::MemoryFormat::Preserve)));
    for (const Segment& segment : family.segments) {
      if (segment.parameter != parameter) continue;
      part_of(state, *state.arrays[array], segment)
          .copy_(whole.narrow(0, static_cast<std::int64_t>(segment.begin),
                              static_cast<std::int64_t>(segment.elements)));
    }
  }
  current.steps = steps_of(*found->second, *current.options);
}

/// Where ranks share memory all of the state is there to be seen; elsewhere what this rank had been given is
/// old now.
void ShardedStep::hand_out(States& states) {
  for (std::size_t i = 0; i < current_.size(); ++i) {
    Current& current = current_[i];
    current.version = model_.parameters()[i].item.tensor._version();
    if (current.options == nullptr || state_arrays(*current.options) == 0) continue;
    const FlatModel::Parameter& parameter = model_.parameters()[i];
    void* const key = parameter.item.tensor.unsafeGetTensorImpl();
    if (current.is_updated) ++current.steps;
    if (!sees_all_state_) {
      states.erase(key);
      current.views = {};
      continue;
    }
    if (current.steps == 0) continue;
    auto& state = states[key];
    const bool is_ours = state && arrays_of(*state, *current.options)[0].is_same(current.views[0]);
    if (!is_ours) {
      for (std::size_t array = 0; array < state_arrays(*current.options); ++array) {
        const FlatArray& whole = *family_states_[parameter.family].arrays[array];
        current.views[array] = whole.view(parameter.position, parameter.item.tensor);
      }
      state = lockstep::make_state(*current.options, current.views, current.steps);
    }
    set_steps(*state, *current.options, current.steps);
  }
}

/// All ranks' slices, in main memory: one copy for those that share it.
std::shared_ptr<FlatArray> ShardedStep::gathered(const FlatModel::Family& family,
                                                 const FlatArray& slice) const {
  const torch::Tensor own = slice.flat().cpu();
  auto whole = std::make_shared<FlatArray>(group_, torch::kCPU, own.scalar_type(), family.layout.elements);
  if (shares_memory(group_)) {
    whole->part(family.slice).copy_(own);
    barrier(group_).wait();
  } else {
    gather_slices(family, own, whole->flat()).wait();
  }
  return whole;
}

void ShardedStep::require_gathered(const Groups& groups, const States& states) const {
  if (sees_all_state_ || is_loaded_) return;
  for (const auto& group : groups) {
    const bool keeps_some = state_arrays(group.options()) > 0;
    for (const torch::Tensor& parameter : group.params()) {
      const bool is_apart = keeps_some && current_[number_of(parameter)].steps > 0 &&
                            states.find(parameter.unsafeGetTensorImpl()) == states.end();
      if (is_apart) {
        throw_invalid_argument(
            "each rank has its part of a ShardedOptimizer's state here: call gather_state() on all of them "
            "before save(), "
            "or save_checkpoint(), which does");
      }
    }
  }
}

void ShardedStep::gather_state(const Groups& groups, States& states) {
  require_whole();
  if (sees_all_state_) return;
  const torch::NoGradGuard no_grad;
  find_options(groups);
  make_state(states);
  for (std::size_t number = 0; number < family_states_.size(); ++number) {
    const FlatModel::Family& family = model_.families()[number];
    const FamilyState& state = family_states_[number];
    std::array<std::shared_ptr<FlatArray>, most_state_arrays> whole;
    for (std::size_t array = 0; array < most_state_arrays; ++array) {
      if (!state.arrays[array]) continue;
      whole[array] = gathered(family, *state.arrays[array]);
    }
    for (const auto& [parameter, place] : family.layout.entries) {
      Current& current = current_[parameter];
      if (current.options == nullptr || current.steps == 0) continue;
      StateArrays arrays;
      const FlatModel::Parameter& placed = model_.parameters()[parameter];
      for (std::size_t array = 0; array < state_arrays(*current.options); ++array)
        arrays[array] = whole[array]->view(placed.position, placed.item.tensor);
      current.views = arrays;
      states[placed.item.tensor.unsafeGetTensorImpl()] =
          lockstep::make_state(*current.options, arrays, current.steps);
    }
  }
}

/// This rank's part of each parameter; of no elements where it has none.
std::vector<Segment> ShardedStep::own_segments() const {
  std::vector<Segment> own(current_.size());
  for (const FlatModel::Family& family : model_.families()) {
    for (const Segment& segment : family.segments) own[segment.parameter] = segment;
  }
  return own;
}

std::vector<ParameterSlice> ShardedStep::slices(const Groups& groups) {
  find_options(groups);
  const auto own = own_segments();
  std::vector<ParameterSlice> found;
  for (std::size_t i = 0; i < current_.size(); ++i) {
    if (current_[i].options != nullptr)
      found.push_back({model_.parameters()[i].item, own[i].begin, own[i].elements});
  }
  return found;
}

/// The arrays that its options ask for, once it has had a step.
SliceState ShardedStep::state_of(std::size_t parameter, const Segment& own) const {
  const Current& current = current_[parameter];
  const FlatModel::Parameter& placed = model_.parameters()[parameter];
  const FamilyState& state = family_states_[placed.family];
  const auto view = [&](const FlatArray& array) {
    return own.elements == 0 ? torch::empty({0}, array.flat().options()) : part_of(state, array, own);
  };
  SliceState slice{.steps = current.steps};
  const std::size_t arrays = current.steps > 0 ? state_arrays(*current.options) : 0;
  for (std::size_t array = 0; array < arrays; ++array) slice.arrays[array] = view(*state.arrays[array]);
  if (state.masters) slice.master = view(*state.masters);
  return slice;
}

std::vector<SliceState> ShardedStep::slice_states(const Groups& groups, States& states) {
  require_whole();
  const torch::NoGradGuard no_grad;
  find_options(groups);
  make_state(states);
  const auto own = own_segments();
  std::vector<SliceState> found;
  for (std::size_t i = 0; i < current_.size(); ++i) {
    if (current_[i].options == nullptr) continue;
    SliceState& state = found.emplace_back(state_of(i, own[i]));
    for (torch::Tensor& array : state.arrays) {
      if (array.defined()) array = array.cpu();
    }
    if (state.master.defined()) state.master = state.master.cpu();
  }
  return found;
}

void ShardedStep::forget_state() {
  for (Current& current : current_) {
    current.views = {};
    current.steps = 0;
    current.version = -1;
  }
  for (std::size_t number = 0; number < family_states_.size(); ++number) {
    for (const auto& array : family_states_[number].arrays) {
      if (array) own_part(number, *array).zero_();
    }
  }
}

void ShardedStep::restore_slices(const Groups& groups, States& states, std::span<const SliceState> restored) {
  const torch::NoGradGuard no_grad;
  find_options(groups);
  is_loaded_ = false;
  forget_state();
  states.clear();
  make_state(states);  // masters are those of the parameters now
  const auto own = own_segments();
  std::size_t next = 0;
  for (std::size_t i = 0; i < current_.size(); ++i) {
    current_[i].is_updated = false;
    if (current_[i].options == nullptr) continue;
    const SliceState& from = restored[next++];
    current_[i].steps = from.steps;
    const SliceState to = state_of(i, own[i]);
    for (std::size_t array = 0; array < most_state_arrays; ++array) {
      if (to.arrays[array].defined() && from.arrays[array].defined())
        to.arrays[array].copy_(from.arrays[array]);
    }
    if (to.master.defined() && from.master.defined()) to.master.copy_(from.master);
  }
  if (sees_all_state_) barrier(group_).wait();
  hand_out(states);
}

}  // namespace lockstep
