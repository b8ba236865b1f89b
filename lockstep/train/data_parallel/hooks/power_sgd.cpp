#include "lockstep/train/data_parallel/hooks/power_sgd.h"

#include <ATen/CPUGeneratorImpl.h>

#include <algorithm>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

/// Columns of length 1, at right angles to each other, that span at least what they did: also where they were
/// all but parallel. The same bits on all ranks whose processors are of one kind.
void orthogonalise(const torch::Tensor& matrix) { matrix.copy_(std::get<0>(torch::linalg_qr(matrix))); }

}  // namespace

PowerSgdHook::PowerSgdHook(const PowerSgdOptions& options) : options_(options) {
  if (options.rank < 1)
    throw_invalid_argument("PowerSGD's rank is " + std::to_string(options.rank) + "; it is at least 1");
}

PowerSgdHook::~PowerSgdHook() = default;

std::string PowerSgdHook::name() const {
  return "PowerSGD of rank " + std::to_string(options_.rank) + ", after " +
         std::to_string(options_.start_after) + " steps, least compression " +
         std::to_string(options_.least_compression) + ", error feedback " +
         (options_.error_feedback ? "on" : "off") + ", warm start " + (options_.warm_start ? "on" : "off") +
         ", seed " + std::to_string(options_.seed);
}

void PowerSgdHook::forget() {
  if (const auto first = states_.find(0); first != states_.end()) steps_before_ = first->second.steps;
  states_.clear();
}

bool PowerSgdHook::is_worth_it(const torch::Tensor& gradient) const {
  if (gradient.dim() < 2 || gradient.element_size() <= 2 || gradient.numel() == 0) return false;
  const auto rows = gradient.size(0), columns = gradient.numel() / rows;
  const auto thin = static_cast<double>(rows + columns) * static_cast<double>(options_.rank);
  return thin * options_.least_compression < static_cast<double>(gradient.numel());
}

std::int64_t PowerSgdHook::rank_for(const torch::Tensor& matrix) const {
  return std::min({options_.rank, matrix.size(0), matrix.size(1)});
}

PowerSgdHook::State PowerSgdHook::make_state(const GradientBucket& bucket) const {
  State state;
  state.steps = steps_before_;
  std::int64_t in_first = 0, in_second = 0;
  for (const auto& gradient : bucket.gradients) {
    if (!is_worth_it(gradient)) {
      state.others.push_back(gradient);
      in_first += gradient.numel();
      continue;
    }
    const auto rows = gradient.size(0), columns = gradient.numel() / rows;
    Matrix matrix;
    matrix.gradient = gradient;
    matrix.value = torch::empty({rows, columns}, gradient.options());
    if (options_.error_feedback) matrix.lost = torch::zeros_like(matrix.value);
    state.matrices.push_back(matrix);
    in_first += rows * rank_for(matrix.value);
    in_second += columns * rank_for(matrix.value);
  }
  const auto type = bucket.flat.scalar_type();
  state.first = bucket.scratch({in_first}, type);
  state.second = bucket.scratch({in_second}, type);
  std::int64_t first = 0, second = 0;
  const auto take = [](const torch::Tensor& from, std::int64_t& begin, std::int64_t elements) {
    begin += elements;
    return from.narrow(0, begin - elements, elements);
  };
  for (auto& matrix : state.matrices) {
    const auto rows = matrix.value.size(0), columns = matrix.value.size(1), rank = rank_for(matrix.value);
    matrix.left = take(state.first, first, rows * rank).view({rows, rank});
    matrix.right = take(state.second, second, columns * rank).view({columns, rank});
  }
  for (const auto& gradient : state.others)
    state.other_places.push_back(take(state.first, first, gradient.numel()));
  return state;
}

PowerSgdHook::State& PowerSgdHook::state_of(const GradientBucket& bucket) {
  const auto found = states_.find(bucket.number);
  return found != states_.end() ? found->second
                                : states_.emplace(bucket.number, make_state(bucket)).first->second;
}

/// Where the power iteration begins: the same on all ranks.
void PowerSgdHook::choose_right(const GradientBucket& bucket, State& state) const {
  const bool is_first = state.steps == std::max(options_.start_after, steps_before_);
  if (is_first || !options_.warm_start) {
    const auto random =
        at::make_generator<at::CPUGeneratorImpl>(options_.seed + 1000003 * state.steps + bucket.number);
    state.second.copy_(torch::randn(state.second.sizes(), random, torch::dtype(state.second.scalar_type())));
  }
  for (const auto& matrix : state.matrices) orthogonalise(matrix.right);
}

Work PowerSgdHook::begin(const GradientBucket& bucket) {
  State& state = state_of(bucket);
  state.stage = 0;
  if (state.steps < options_.start_after || state.matrices.empty()) return bucket.average(bucket.flat);
  choose_right(bucket, state);
  for (const auto& matrix : state.matrices) {
    matrix.value.copy_(matrix.gradient.reshape(matrix.value.sizes()));
    if (matrix.lost.defined()) matrix.value.add_(matrix.lost);
    auto left = matrix.left;
    torch::matmul_out(left, matrix.value, matrix.right);
  }
  for (std::size_t i = 0; i < state.others.size(); ++i)
    state.other_places[i].copy_(state.others[i].reshape({-1}));
  state.stage = 1;
  return bucket.average(state.first);
}

std::optional<Work> PowerSgdHook::proceed(const GradientBucket& bucket) {
  State& state = state_of(bucket);
  if (state.stage == 1) {
    state.stage = 2;
    for (const auto& matrix : state.matrices) {
      orthogonalise(matrix.left);
      auto right = matrix.right;
      torch::matmul_out(right, matrix.value.t(), matrix.left);
    }
    return bucket.average(state.second);
  }
  if (state.stage == 2) {
    for (const auto& matrix : state.matrices) {
      const auto near = matrix.left.matmul(matrix.right.t());
      matrix.gradient.copy_(near.view(matrix.gradient.sizes()));
      if (matrix.lost.defined()) {
        auto lost = matrix.lost;
        torch::sub_out(lost, matrix.value, near);
      }
    }
    for (std::size_t i = 0; i < state.others.size(); ++i)
      state.others[i].copy_(state.other_places[i].view(state.others[i].sizes()));
  }
  state.stage = 0;
  ++state.steps;
  return std::nullopt;
}

}  // namespace lockstep
