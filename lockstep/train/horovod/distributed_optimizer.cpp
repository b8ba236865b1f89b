#include "lockstep/train/horovod/distributed_optimizer.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/trace/traced_range.h"
#include "lockstep/train/data_parallel/gradient_hooks.h"
#include "lockstep/train/data_parallel/hooks/predivided_hook.h"
#include "lockstep/train/horovod/adasum.h"
#include "lockstep/train/optimizer/optimizer_state.h"
#include "lockstep/train/replicas/finite_gradients.h"
#include "lockstep/train/replicas/model_tensors.h"
#include "lockstep/train/replicas/named_tensor.h"
#include "lockstep/train/replicas/same_facts.h"
#include "lockstep/train/replicas/same_options.h"
#include "lockstep/train/replicas/sparse_gradients.h"
#include "lockstep/train/tensor/openmp_runtimes.h"
#include "lockstep/train/tensor/shared_heap.h"
#include "lockstep/train/tensor/traced_operators.h"

namespace lockstep {
namespace {

/// The optimizer's trainable parameters, under the module's names and in its order.
std::vector<NamedTensor> parameters_of(const torch::optim::Optimizer& optimizer,
                                       const torch::nn::Module& module) {
  std::set<const void*> wanted;
  for (const auto& group : optimizer.param_groups()) {
    for (const auto& tensor : group.params()) {
      if (tensor.requires_grad()) wanted.insert(tensor.unsafeGetTensorImpl());
    }
  }
  std::vector<NamedTensor> found;
  for (auto& item : distinct_parameters(tensors_of(module), true)) {
    if (wanted.erase(item.tensor.unsafeGetTensorImpl()) > 0) found.push_back(std::move(item));
  }
  if (!wanted.empty()) {
    throw_invalid_argument("DistributedOptimizer: " + std::to_string(wanted.size()) +
                           " of the optimizer's parameters are not the module's; pass the module whose "
                           "parameters() the optimizer was made with");
  }
  return found;
}

void require_possible(const DistributedOptimizerOptions& options) {
  if (options.backward_passes_per_step < 1)
    throw_invalid_argument("backward_passes_per_step is " + std::to_string(options.backward_passes_per_step) +
                           "; it has to be 1 or more");
  if (options.groups < 0)
    throw_invalid_argument("groups is " + std::to_string(options.groups) + "; it has to be 0 or more");
  const bool predivides = options.gradient_predivide_factor != 1.0;
  if (predivides && options.op != GradientOp::average)
    throw_invalid_argument("gradient_predivide_factor is for GradientOp::average only");
  require_compressible(options.op, options.compression);
}

/// Null: the average as it is.
std::shared_ptr<CommunicationHook> hook_for(const DistributedOptimizerOptions& options) {
  std::shared_ptr<CommunicationHook> hook;
  if (options.compression != Compression::none)
    hook = std::make_shared<HalfHook>(half_of(options.compression));
  if (options.gradient_predivide_factor == 1.0) return hook;
  if (!hook) hook = std::make_shared<AllReduceHook>();
  return std::make_shared<PredividedHook>(std::move(hook), options.gradient_predivide_factor);
}

BucketLimits limits_for(const DistributedOptimizerOptions& options, std::span<const NamedTensor> parameters) {
  if (options.groups == 0) return {};
  std::size_t bytes = 0;
  for (const auto& item : parameters) bytes += item.tensor.nbytes();
  const auto each = std::max<std::size_t>(bytes / static_cast<std::size_t>(options.groups), 1);
  return {.first_bytes = each, .cap_bytes = each};
}

std::vector<Fact> facts_of(const DistributedOptimizerOptions& options, const CommunicationHook* hook) {
  return {{"option backward_passes_per_step", std::to_string(options.backward_passes_per_step)},
          {"option op", std::to_string(static_cast<int>(options.op))},
          {"option groups", std::to_string(options.groups)},
          {"option non_finite", std::to_string(static_cast<int>(options.non_finite))},
          {"compression", hook == nullptr ? "none" : hook->name()}};
}

}  // namespace

DistributedOptimizer::DistributedOptimizer(torch::optim::Optimizer& optimizer,
                                           const torch::nn::Module& module, const Group& group,
                                           const DistributedOptimizerOptions& options)
    : optimizer_(optimizer), group_(group), options_(options) {
  require_possible(options);
  warn_of_two_openmp_runtimes();
  trace_operators_if_asked();
  auto parameters = parameters_of(optimizer, module);
  const auto sparse = sparse_gradients(module, parameters);
  const auto hook = hook_for(options);
  auto facts = lockstep::facts_of(parameters, "DistributedOptimizer");
  // Only its kind: what a checkpoint says of its options may come later.
  facts.push_back({"optimizer", optimizer_kind(optimizer)});
  std::ranges::move(facts_of(options, hook.get()), std::back_inserter(facts));
  require_same_facts(group, facts, "Make the same optimizer, with the same options, on every rank");
  for (const auto& item : parameters) require_averageable(item);
  parameters_ = parameters;
  const bool has_work = group.size() > 1 || options.non_finite != NonFinite::ignore;
  if (options.op != GradientOp::adasum && has_work) {
    const auto limits = limits_for(options, parameters);
    auto reducer =
        std::make_unique<Reducer>(group, std::move(parameters), sparse,
                                  ReducerOptions{.limits = limits,
                                                 .find_unused = true,
                                                 .non_finite = options.non_finite,
                                                 .hook = hook,
                                                 .agreement = std::make_shared<SameOptions>(optimizer)});
    hooks_ = GradientHooks::attach(
        std::move(reducer),
        {.owner = "DistributedOptimizer", .passes_per_average = options.backward_passes_per_step});
    // A sum is an average that is divided by one.
    if (options.op == GradientOp::sum) hooks_->set_contributors(1);
  }
  if (options.shared_heap && group.size() > 1) heap_ = SharedHeap::unless_there_is_one(group);
}

DistributedOptimizer::~DistributedOptimizer() = default;

void DistributedOptimizer::synchronize() {
  if (!hooks_) return;
  const int passes = hooks_->passes();
  if (passes > options_.backward_passes_per_step) {
    throw_invalid_argument("backward ran " + std::to_string(passes) +
                           " times since the last step(), and backward_passes_per_step is " +
                           std::to_string(options_.backward_passes_per_step) +
                           ": the gradients of the last ones are not averaged; set it to " +
                           std::to_string(passes));
  }
  if (passes < options_.backward_passes_per_step) hooks_->average_now();
  hooks_->set_passes(options_.backward_passes_per_step);  // nothing is left to average
}

torch::Tensor DistributedOptimizer::step(const torch::optim::Optimizer::LossClosure& closure) {
  const TracedRange range("optimizer");
  if (options_.op == GradientOp::adasum) return adasum_step(closure);
  if (!hooks_) return optimizer_.step(closure);
  torch::Tensor loss;
  if (closure) {
    // LBFGS calls it several times.
    loss = optimizer_.step([&] {
      auto found = closure();
      synchronize();
      hooks_->set_passes(0);
      return found;
    });
  } else {
    synchronize();
    loss = optimizer_.step();
  }
  hooks_->set_passes(0);
  return loss;
}

torch::Tensor DistributedOptimizer::adasum_step(const torch::optim::Optimizer::LossClosure& closure) {
  const torch::NoGradGuard no_grad;
  if (is_step_to_compare(steps_++)) require_same_options(group_, optimizer_);
  std::vector<torch::Tensor> before, steps;
  if (group_.size() > 1) {
    for (const auto& parameter : parameters_) before.push_back(parameter.tensor.detach().clone());
  }
  torch::Tensor loss;
  {
    const torch::AutoGradMode with_gradients(true);
    if (closure) {
      loss = optimizer_.step([&] {
        auto found = closure();
        leave_out_non_finite();
        return found;
      });
    } else {
      leave_out_non_finite();
      loss = optimizer_.step();
    }
  }
  if (before.empty()) return loss;
  for (std::size_t i = 0; i < before.size(); ++i) steps.push_back(parameters_[i].tensor.detach() - before[i]);
  adasum(group_, steps);
  for (std::size_t i = 0; i < before.size(); ++i) parameters_[i].tensor.copy_(before[i] + steps[i]);
  return loss;
}

/// Of adasum, where each rank steps with its own: without gradients an optimizer changes nothing.
void DistributedOptimizer::leave_out_non_finite() {
  if (options_.non_finite == NonFinite::ignore) return;
  std::vector<NamedTensor> gradients;
  for (const auto& parameter : parameters_) gradients.push_back({parameter.name, parameter.tensor.grad()});
  if (are_all_finite(group_, options_.non_finite, steps_ - 1, gradients)) return;
  for (auto& parameter : parameters_) parameter.tensor.mutable_grad() = torch::Tensor();
}

}  // namespace lockstep
