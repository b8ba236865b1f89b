#include "lockstep/train/sharded/sharded_step.h"

#include <algorithm>
#include <cmath>

#include "lockstep/base/error.h"
#include "lockstep/group/collectives.h"
#include "lockstep/group/gpu_calls.h"
#include "lockstep/group/gpu_update.h"
#include "lockstep/group/outcome.h"
#include "lockstep/group/shared_memory.h"
#include "lockstep/kernel/reduce.h"
#include "lockstep/trace/traced_range.h"
#include "lockstep/train/replicas/broadcast_tensors.h"
#include "lockstep/train/replicas/exposed_time.h"
#include "lockstep/train/replicas/finite_gradients.h"
#include "lockstep/train/replicas/model_tensors.h"
#include "lockstep/train/replicas/same_facts.h"
#include "lockstep/train/replicas/same_options.h"
#include "lockstep/train/replicas/told_where.h"
#include "lockstep/train/tensor/arena_tensor.h"
#include "lockstep/train/tensor/gpu_place.h"
#include "lockstep/train/tensor/gradient_layout.h"
#include "lockstep/train/tensor/openmp_runtimes.h"
#include "lockstep/train/tensor/tensor_bytes.h"
#include "lockstep/train/tensor/tensor_collectives.h"
#include "lockstep/train/tensor/traced_operators.h"

namespace lockstep {
namespace {

// Of a row: a hash of the options, then where each parameter's gradient lies.
constexpr std::size_t first_place = 1;
constexpr std::uint64_t no_gradient = 0;
// An offset is a multiple of an element's size, so that it is never 1.
constexpr std::uint64_t comes_by_message = 1;

void require_one_device(const std::vector<NamedTensor>& trainable) {
  for (const NamedTensor& item : trainable) {
    if (item.tensor.device() == trainable[0].tensor.device()) continue;
    throw Error(ErrorCode::unsupported, item.label() + " is " + describe(item.tensor) + ", and " +
                                            trainable[0].label() + " is " + describe(trainable[0].tensor) +
                                            "; a ShardedOptimizer puts parameters into one array: use "
                                            "DistributedDataParallel where a model lies on "
                                            "several devices");
  }
}

std::vector<NamedTensor> prepare(const torch::nn::Module& module, const Group& group,
                                 const ShardedStep::Groups& groups, const ShardedOptions& options) {
  if (!(options.max_gradient_norm >= 0)) {
    throw_invalid_argument("ShardedOptions::max_gradient_norm is " +
                           std::to_string(options.max_gradient_norm) +
                           "; it is 0, for never, or what gradients are shortened to");
  }
  const auto tensors = tensors_of(module);
  auto facts = facts_of(tensors, "ShardedOptimizer");
  for (std::size_t i = 0; i < groups.size(); ++i) {
    require_known(groups[i].options());
    facts.push_back(
        {"optimizer's parameter group " + std::to_string(i),
         kind_of(groups[i].options()) + ", " + std::to_string(groups[i].params().size()) + " parameters"});
  }
  facts.push_back({"option max_gradient_norm", std::to_string(options.max_gradient_norm)});
  facts.push_back({"option non_finite", std::to_string(static_cast<int>(options.non_finite))});
  require_same_facts(group, facts, "Build the same model and optimizer on every rank");
  for (const NamedTensor& item : tensors) require_averageable(item);
  auto trainable = distinct_parameters(tensors, true);
  on_every_rank(group, [&] { require_one_device(trainable); });  // ranks were compared by the kind of device
  broadcast_tensors(group, tensors);
  return trainable;
}

std::vector<NamedTensor> items_of(const FlatModel& model) {
  std::vector<NamedTensor> items;
  for (const auto& parameter : model.parameters()) items.push_back(parameter.item);
  return items;
}

}  // namespace

ShardedStep::ShardedStep(const torch::nn::Module& module, Group group, const Groups& groups,
                         const ShardedOptions& options)
    : group_(std::move(group)),
      options_(options),
      model_(group_, prepare(module, group_, groups, options)),
      claim_(items_of(model_), "ShardedOptimizer", [this] { require_whole(); }),
      watch_(items_of(model_)),
      shares_memory_(model_.is_shared()),
      sees_all_state_(shares_memory_ || group_.size() == 1),
      family_states_(model_.families().size()),
      current_(model_.parameters().size()),
      versions_(group_, shares_memory_),
      record_(group_) {
  for (std::size_t i = 0; i < model_.parameters().size(); ++i)
    numbers_[model_.parameters()[i].item.tensor.unsafeGetTensorImpl()] = i;
  find_options(groups);
  shares_gpu_ = group_.size() > 1 && stays_on_gpu(group_, model_.device()) &&
                shares_gpu(group_, model_.device().index());
  warn_of_two_openmp_runtimes();
  trace_operators_if_asked();
  if (options_.shared_heap && group_.size() > 1 && model_.device().is_cpu())
    heap_ = SharedHeap::unless_there_is_one(group_);
}

ShardedStep::~ShardedStep() = default;

std::size_t ShardedStep::number_of(const torch::Tensor& parameter) const {
  const auto found = numbers_.find(parameter.unsafeGetTensorImpl());
  if (found != numbers_.end()) return found->second;
  throw_invalid_argument("the optimizer has a parameter, " + describe(parameter) +
                         ", that is not a trainable one of its module");
}

void ShardedStep::find_options(const Groups& groups) {
  for (Current& current : current_) current.options = nullptr;
  for (const auto& group : groups) {
    for (const torch::Tensor& parameter : group.params())
      current_[number_of(parameter)].options = &group.options();
  }
}

void ShardedStep::take(Groups& groups, States& states) {
  const TracedRange range("optimizer");
  const torch::NoGradGuard no_grad;
  const std::uint64_t begin = trace::now_ns();
  event_ = {.step = taken_ + skipped_,
            .begin_ns = begin,
            .last_gradient_ns = begin,
            .end_ns = 0,
            .exposed_work_ns = 0,
            .exposed_wait_ns = 0,
            .buckets = static_cast<std::uint32_t>(model_.families().size()),
            .buckets_complete_at_last_gradient = 0,
            .gradient_bytes = 0};
  record_.begin();
  require_whole();
  watch_.note_step();
  try {
    reduce_and_update(groups, states);
  } catch (const Error& error) {
    throw told_what_is_left(error);
  } catch (const std::exception&
               error) {  // such as no memory on a GPU: the others are on their way to the next call
    const Error told = told_what_is_left(Error(ErrorCode::system, error.what()));
    group_.abort(told);
    throw told;
  }
  event_.end_ns = trace::now_ns();
  if (group_.size() > 1) record_.put(event_);
}

/// The error of a step, with where it came up, and whether parameters are a model still.
Error ShardedStep::told_what_is_left(const Error& error) const {
  const Error told =
      told_where(error, "step " + std::to_string(taken_ + skipped_) + " of a ShardedOptimizer");
  if (versions_.are_whole()) return told;
  return {told.code(),
          std::string(told.what()) +
              "; it was cut off while parameters were being changed: they are no model now, load the last "
              "checkpoint",
          told.peer()};
}

void ShardedStep::reduce_and_update(Groups& groups, States& states) {
  model_.require_in_place();
  find_options(groups);
  for (const auto& group : groups) require_known(group.options());
  const std::uint64_t begin = trace::now_ns();
  Row row = make_row();
  event_.exposed_work_ns += trace::now_ns() - begin;
  row[0] = option_digest(groups);
  exchange(row);
  require_same_options(groups);
  if (!sees_all_state_ || !model_.device().is_cpu()) {
    collect_gradients();
    if (!moves_together()) add_gradients();
  }
  make_state(states);
  double scale = 1.0 / group_.size();
  if (needs_norm()) {
    const double length = norm();
    if (!may_go_on(length)) return;
    // As torch::nn::utils::clip_grad_norm_ does.
    if (options_.max_gradient_norm > 0) scale *= std::min(1.0, options_.max_gradient_norm / (length + 1e-6));
  }
  versions_.begin();
  update_slices(scale);
  if (sees_all_state_) versions_.end();
  spread_parameters();
  if (!sees_all_state_) versions_.end();
  ++taken_;
  model_.note_changes();
  hand_out(states);
}

/// What `submit` begins. A GPU may have enough to do meanwhile, and itself says how long it had not.
template <class Submit>
void ShardedStep::await(Submit submit) {
  const trace::WithinStep step;
  record_.begin_wait(model_.device());
  Work work = submit();
  const ExposedTime exposed(group_);
  work.synchronize();  // on a GPU, too: no parameter is moved by a sum that has failed
  const std::uint64_t waited_ns = exposed.waited_ns();
  waited_ns_ += waited_ns;
  if (model_.device().is_cpu()) event_.exposed_wait_ns += waited_ns;
  record_.end_wait();
}

ShardedStep::Row ShardedStep::make_row() {
  Row row(first_place + current_.size());
  for (std::size_t i = 0; i < current_.size(); ++i) row[first_place + i] = place_gradient(i);
  return row;
}

std::uint64_t ShardedStep::place_gradient(std::size_t parameter) {
  Current& current = current_[parameter];
  const torch::Tensor& tensor = model_.parameters()[parameter].item.tensor;
  current.gradient = torch::Tensor();
  if (current.options == nullptr || !tensor.grad().defined() || tensor.numel() == 0) return no_gradient;
  current.gradient = like_parameter(tensor.grad(), tensor);
  event_.gradient_bytes += current.gradient.nbytes();
  if (!shares_memory_) return comes_by_message;
  if (const auto place = place_of(group_, elements_of(current.gradient))) return to_word(*place);
  if (!current.reachable.defined()) {
    const auto block = std::make_shared<ArenaBlock>(group_.allocate_bytes(current.gradient.nbytes()));
    current.reachable = torch::from_blob(
        block->bytes().data(), tensor.sizes(), tensor.strides(), [block](void*) {},
        torch::TensorOptions().dtype(tensor.scalar_type()));
  }
  current.gradient = current.reachable.copy_(current.gradient);
  return to_word(place_of(group_, elements_of(current.gradient)).value());
}

/// After this every rank's gradients are there to be read.
void ShardedStep::exchange(const Row& row) {
  Row all(row.size() * static_cast<std::size_t>(group_.size()));
  try {
    await([&] { return all_gather(group_, row, all); });
  } catch (const Error&) {
    versions_.give_up();
    throw;
  }
  rows_.clear();
  for (std::size_t begin = 0; begin < all.size(); begin += row.size())
    rows_.emplace_back(all.begin() + static_cast<std::ptrdiff_t>(begin),
                       all.begin() + static_cast<std::ptrdiff_t>(begin + row.size()));
  for (std::size_t i = 0; i < current_.size(); ++i) {
    current_[i].is_updated =
        std::ranges::any_of(rows_, [&](const Row& one) { return one[first_place + i] != no_gradient; });
  }
}

void ShardedStep::require_same_options(const Groups& groups) const {
  if (std::ranges::all_of(rows_, [&](const Row& row) { return row[0] == rows_[0][0]; })) return;
  require_same_facts(group_, option_facts(groups), "Set the optimizer's options alike on every rank");
}

/// The average's length is asked for before anything is moved by it.
bool ShardedStep::needs_norm() const {
  return options_.max_gradient_norm > 0 || options_.non_finite != NonFinite::ignore;
}

/// Without shared memory: all gradients in one array, with zeros where there are none.
void ShardedStep::collect_gradients() {
  const std::uint64_t begin = trace::now_ns();
  for (std::size_t number = 0; number < family_states_.size(); ++number) {
    const FlatModel::Family& family = model_.families()[number];
    FamilyState& state = family_states_[number];
    if (!state.gradients.defined()) {
      torch::Tensor gradients;
      on_every_rank(group_, [&] {
        gradients = tensor_for_calls(group_, model_.device(),
                                     {static_cast<std::int64_t>(family.layout.elements)}, family.type)
                        .zero_();
      });
      state.gradients = gradients;
    }
    std::vector<torch::Tensor> from, to;
    for (const auto& [parameter, place] : family.layout.entries) {
      Current& current = current_[parameter];
      if (place.count == 0) continue;
      auto part = state.gradients.narrow(0, static_cast<std::int64_t>(place.begin),
                                         static_cast<std::int64_t>(place.count));
      if (current.gradient.defined()) {
        from.push_back(in_memory_order(current.gradient));
        to.push_back(std::move(part));
      } else if (current.is_filled) {
        part.zero_();
      }
      current.is_filled = current.gradient.defined();
    }
    if (!to.empty()) at::_foreach_copy_(to, from);
  }
  event_.exposed_work_ns += trace::now_ns() - begin;
}

/// The sum of what was collected over all ranks, of which each gets its slice.
void ShardedStep::add_gradients() {
  const std::uint64_t begin = trace::now_ns();
  const std::uint64_t waited_before = waited_ns_;
  for (std::size_t number = 0; number < family_states_.size(); ++number) {
    const FlatModel::Family& family = model_.families()[number];
    FamilyState& state = family_states_[number];
    if (group_.size() == 1) {
      state.sum = state.gradients;
      continue;
    }
    if (!state.sum.defined()) {
      torch::Tensor sum;
      on_every_rank(group_, [&] {
        sum = tensor_for_calls(group_, model_.device(), {static_cast<std::int64_t>(family.slice.count)},
                               family.type);
      });
      state.sum = sum;
    }
    await([&] {
      return model_.device().is_cpu() ? reduce_scatter_bytes(group_, elements_of(state.gradients),
                                                             writable_bytes(state.sum, "a sum"),
                                                             {.dtype = family.dtype}, slice_counts(family))
                                      : reduce_scatter(group_, state.gradients, state.sum);
    });
  }
  event_.exposed_work_ns += trace::now_ns() - begin - (waited_ns_ - waited_before);
}

std::vector<std::size_t> ShardedStep::slice_counts(const FlatModel::Family& family) const {
  std::vector<std::size_t> counts;
  for (int rank = 0; rank < group_.size(); ++rank)
    counts.push_back(slice_of(family.layout, rank, group_.size()).count);
  return counts;
}

/// `own`: this rank's slice of an array like the family's; `whole` gets all of them.
Work ShardedStep::gather_slices(const FlatModel::Family& family, const torch::Tensor& own,
                                const torch::Tensor& whole) const {
  if (!own.is_cpu()) return all_gather(group_, own, whole);
  return all_gather_bytes(group_, elements_of(own), writable_bytes(whole, "a family's array"),
                          static_cast<std::size_t>(own.element_size()), slice_counts(family));
}

std::vector<const std::byte*> ShardedStep::sources(const FlatModel::Family& family,
                                                   const Segment& segment) const {
  const std::size_t size = size_of(family.dtype);
  if (group_.size() == 1) {
    const torch::Tensor& gradient = current_[segment.parameter].gradient;
    return {static_cast<const std::byte*>(gradient.const_data_ptr()) + segment.begin * size};
  }
  if (!shares_memory_) {
    const auto number = static_cast<std::size_t>(&family - model_.families().data());
    return {elements_of(family_states_[number].sum).data() + (segment.position - family.slice.begin) * size};
  }
  std::vector<const std::byte*> found;
  for (const Row& row : rows_) {
    const std::uint64_t word = row[first_place + segment.parameter];
    if (word == no_gradient) continue;
    ArenaPlace place = place_of_word(word);
    place.offset += segment.begin * size;
    found.push_back(memory_at(group_, place, segment.elements * size).data());
  }
  return found;
}

/// Collective: the length of the average gradient.
double ShardedStep::norm() {
  std::array<double, 1> sum = {squared_norm()};
  try {
    await([&] { return all_reduce(group_, sum); });
  } catch (const Error&) {
    versions_.give_up();
    throw;
  }
  return std::sqrt(sum[0]);
}

/// Of the average gradient, in this rank's slice.
double ShardedStep::squared_norm() const {
  if (!model_.device().is_cpu()) return squared_norm_on_gpu();
  constexpr std::size_t piece = 4096;
  std::vector<std::byte> memory(piece * sizeof(double));
  double sum = 0;
  for (const FlatModel::Family& family : model_.families()) {
    const std::size_t size = size_of(family.dtype);
    for (const Segment& segment : family.segments) {
      if (!current_[segment.parameter].is_updated) continue;
      auto gradients = sources(family, segment);
      for (std::size_t begin = 0; begin < segment.elements; begin += piece) {
        const std::size_t count = std::min(piece, segment.elements - begin);
        std::byte* const average = memory.data();
        kernel::reduce(family.dtype, ReduceOp::sum, count, gradients, std::span(&average, 1),
                       1.0 / group_.size());
        for (const std::byte*& source : gradients) source += count * size;
        const auto values =
            torch::from_blob(average, {static_cast<std::int64_t>(count)},
                             model_.parameters()[segment.parameter].item.tensor.scalar_type());
        sum += values.to(torch::kFloat64).square().sum().item<double>();
      }
    }
  }
  return sum;
}

bool ShardedStep::may_go_on(double norm) {
  if (std::isfinite(norm) || options_.non_finite == NonFinite::ignore) return true;
  take_non_finite(group_, options_.non_finite, taken_ + skipped_, first_non_finite(), items_of(model_));
  ++skipped_;
  return false;
}

/// The number of this rank's first gradient that is not; as many as there are if it has none.
std::uint64_t ShardedStep::first_non_finite() const {
  const auto is_bad = [](const Current& current) {
    return current.gradient.defined() && !is_finite(current.gradient);
  };
  return static_cast<std::uint64_t>(std::ranges::find_if(current_, is_bad) - current_.begin());
}

void ShardedStep::update_slices(double scale) {
  if (moves_together()) {
    const auto updates = shared_updates(scale);
    if (!updates.empty())
      await([&] { return update_on_shared_gpu(group_, place_on(model_.device()), updates); });
    return;
  }
  if (!model_.device().is_cpu()) return update_on_gpu(scale);
  for (std::size_t number = 0; number < family_states_.size(); ++number) {
    const FlatModel::Family& family = model_.families()[number];
    const FamilyState& state = family_states_[number];
    for (const Segment& segment : family.segments) {
      const Current& current = current_[segment.parameter];
      if (!current.is_updated) continue;
      const auto gradients = sources(family, segment);
      const std::size_t position = segment.position - state.begin;
      std::array<std::byte*, most_state_arrays> arrays{};
      for (std::size_t array = 0; array < arrays.size(); ++array) {
        if (state.arrays[array]) arrays[array] = state.arrays[array]->at(position);
      }
      float* const masters = state.masters ? reinterpret_cast<float*>(state.masters->at(position)) : nullptr;
      update_slice(*current.options,
                   {.dtype = family.dtype,
                    .elements = segment.elements,
                    .gradients = gradients,
                    .gradient_scale = scale,
                    .parameters = family.memory->at(segment.position),
                    .master = masters},
                   arrays, current.steps);
    }
  }
}

/// After this every rank has all parameters, and may free its gradients.
void ShardedStep::spread_parameters() {
  if (moves_together()) return;
  if (sees_all_state_) {
    await([&] { return barrier(group_); });
    return;
  }
  for (const FlatModel::Family& family : model_.families())
    await([&] { return gather_slices(family, family.memory->part(family.slice), family.memory->flat()); });
}

void ShardedStep::require_whole() const {
  if (versions_.are_whole()) return;
  throw Error(ErrorCode::aborted,
              "step " + std::to_string(taken_ + skipped_) +
                  " was cut off while parameters were being changed, so that some are of the step before and "
                  "some are not; load the last checkpoint");
}

}  // namespace lockstep
