// What a ShardedStep does where the parameters are on a GPU: few kernels, each for as many parameters as take the same step.
#include <algorithm>
#include <cmath>

#include "lockstep/group/gpu_update.h"
#include "lockstep/train/sharded/sharded_step.h"
#include "lockstep/train/tensor/gpu_place.h"
#include "lockstep/train/tensor/tensor_bytes.h"

namespace lockstep {
namespace {

/// What both have.
Range common(const Range& one, const Range& other) {
  const std::size_t begin = std::max(one.begin, other.begin);
  const std::size_t end = std::min(one.begin + one.count, other.begin + other.count);
  return {begin, end > begin ? end - begin : 0};
}

}  // namespace

/// Of the average gradient, in this rank's slice. What no rank has a gradient for is 0.
double ShardedStep::squared_norm_on_gpu() const {
  double sum = 0;
  for (const FamilyState& state : family_states_) {
    const double length = at::linalg_vector_norm(state.sum, 2, {}, false, torch::kFloat64).item<double>();
    sum += length * length;
  }
  return sum / (group_.size() * group_.size());
}

/// Parameters beside each other that take the same step. Between them there are zeros, which stay such. The same on all ranks that ask for the
/// same elements.
std::vector<ShardedStep::Run> ShardedStep::runs_in(const FlatModel::Family& family,
                                                   const Range& elements) const {
  const auto segments = segments_in(family.layout, elements);
  std::vector<Run> runs;
  for (std::size_t first = 0, next = 0; first < segments.size(); first = next) {
    const Current& current = current_[segments[first].parameter];
    const auto steps_alike = [&](const Segment& segment) {
      const Current& other = current_[segment.parameter];
      return other.is_updated == current.is_updated && other.options == current.options &&
             other.steps == current.steps;
    };
    for (next = first + 1; next < segments.size() && steps_alike(segments[next]);) ++next;
    if (!current.is_updated) continue;
    const std::size_t begin = segments[first].position;
    runs.push_back({.elements = {begin, segments[next - 1].position + segments[next - 1].elements - begin},
                    .like = &current});
  }
  return runs;
}

/// Whether one kernel adds up the gradients and moves all ranks' parameters.
bool ShardedStep::moves_together() const { return shares_gpu_ && !needs_norm(); }

std::vector<SharedUpdate> ShardedStep::shared_updates(double scale) const {
  std::vector<SharedUpdate> updates;
  for (std::size_t number = 0; number < family_states_.size(); ++number) {
    const FlatModel::Family& family = model_.families()[number];
    const FamilyState& state = family_states_[number];
    const std::size_t size = size_of(family.dtype);
    for (const Run& run : runs_in(family, {0, family.layout.elements})) {
      const Range own = common(run.elements, family.slice);
      const auto at = [&](const std::shared_ptr<FlatArray>& array) -> const void* {
        return array && own.count > 0 ? array->at(own.begin - state.begin) : nullptr;
      };
      const std::size_t first = run.elements.begin * size, bytes = run.elements.count * size;
      updates.push_back({.gradients = elements_of(state.gradients).subspan(first, bytes),
                         .parameters = {family.memory->at(run.elements.begin), bytes},
                         .dtype = family.dtype,
                         .update = {.step = step_of(*run.like->options, run.like->steps),
                                    .gradient_scale = scale,
                                    .own = {own.count > 0 ? own.begin - run.elements.begin : 0, own.count},
                                    .first = at(state.arrays[0]),
                                    .second = at(state.arrays[1]),
                                    .master = at(state.masters)}});
    }
  }
  return updates;
}

void ShardedStep::update_on_gpu(double scale) {
  const MemoryPlace place = place_on(model_.device());
  const bool has_kernels = place.is_on_gpu() && can_update_on_gpu(place.device);
  for (std::size_t number = 0; number < family_states_.size(); ++number) {
    const FlatModel::Family& family = model_.families()[number];
    const FamilyState& state = family_states_[number];
    for (const auto& [elements, like] : runs_in(family, family.slice)) {
      const Segment run{.position = elements.begin, .elements = elements.count};
      const auto gradient =
          state.sum.narrow(0, static_cast<std::int64_t>(elements.begin - family.slice.begin),
                           static_cast<std::int64_t>(elements.count));
      if (has_kernels) {
        const auto at = [&](const std::shared_ptr<FlatArray>& array) {
          return array ? array->at(elements.begin - state.begin) : nullptr;
        };
        const TensorUpdate tensor{.gradient = gradient.const_data_ptr(),
                                  .parameters = family.memory->at(elements.begin),
                                  .first = at(state.arrays[0]),
                                  .second = at(state.arrays[1]),
                                  .master = at(state.masters),
                                  .elements = elements.count};
        lockstep::update_on_gpu(place, family.dtype, step_of(*like->options, like->steps), scale,
                                std::span(&tensor, 1));
        continue;
      }
      StateArrays arrays;
      for (std::size_t array = 0; array < state_arrays(*like->options); ++array)
        arrays[array] = part_of(state, *state.arrays[array], run);
      update_tensor(*like->options,
                    {.gradient = gradient.to(state_type(family.type)).mul(scale),
                     .parameters = family.memory->part(elements),
                     .master = state.masters ? part_of(state, *state.masters, run) : torch::Tensor()},
                    arrays, like->steps);
    }
  }
}

}  // namespace lockstep
