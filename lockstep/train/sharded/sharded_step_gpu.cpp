// What a ShardedStep does where the parameters are on a GPU: few calls of libtorch's, each for as many parameters as take the same
// step.
#include <cmath>

#include "lockstep/train/sharded/sharded_step.h"

namespace lockstep {

/// Of the average gradient, in this rank's slice. What no rank has a gradient for is 0.
double ShardedStep::squared_norm_on_gpu() const {
  double sum = 0;
  for (const FamilyState& state : family_states_) {
    const double length = at::linalg_vector_norm(state.sum, 2, {}, false, torch::kFloat64).item<double>();
    sum += length * length;
  }
  return sum / (group_.size() * group_.size());
}

void ShardedStep::update_on_gpu(double scale) {
  for (std::size_t number = 0; number < family_states_.size(); ++number) {
    const FlatModel::Family& family = model_.families()[number];
    const FamilyState& state = family_states_[number];
    const auto& segments = family.segments;
    for (std::size_t first = 0, next = 0; first < segments.size(); first = next) {
      const Current& current = current_[segments[first].parameter];
      const auto steps_alike = [&](const Segment& segment) {
        const Current& other = current_[segment.parameter];
        return other.is_updated == current.is_updated && other.options == current.options &&
               other.steps == current.steps;
      };
      for (next = first + 1; next < segments.size() && steps_alike(segments[next]);) ++next;
      if (!current.is_updated) continue;
      // Between parameters there are zeros, which stay such.
      const std::size_t begin = segments[first].position;
      const std::size_t end = segments[next - 1].position + segments[next - 1].elements;
      const Segment all{.position = begin, .elements = end - begin};
      StateArrays arrays;
      for (std::size_t array = 0; array < state_arrays(*current.options); ++array)
        arrays[array] = part_of(state, *state.arrays[array], all);
      const auto gradient = state.sum.narrow(0, static_cast<std::int64_t>(begin - family.slice.begin),
                                             static_cast<std::int64_t>(all.elements));
      update_tensor(*current.options,
                    {.gradient = gradient.to(state_type(family.type)).mul(scale),
                     .parameters = family.memory->part({begin, all.elements}),
                     .master = state.masters ? part_of(state, *state.masters, all) : torch::Tensor()},
                    arrays, current.steps);
    }
  }
}

}  // namespace lockstep
