#include "lockstep/train/sharded/sharded_optimizer_base.h"

#include "lockstep/train/optimizer/fitting_state.h"
#include "lockstep/train/replicas/model_tensors.h"
#include "lockstep/train/sharded/sharded_step.h"

namespace lockstep {

ShardedOptimizerBase::ShardedOptimizerBase(torch::optim::Optimizer& optimizer,
                                           const torch::nn::Module& module, const Group& group,
                                           const ShardedOptions& options)
    : optimizer_(optimizer),
      step_(std::make_unique<ShardedStep>(module, group, optimizer.param_groups(), options)) {}

ShardedOptimizerBase::~ShardedOptimizerBase() = default;

void ShardedOptimizerBase::gather_state() const {
  step_->gather_state(optimizer_.param_groups(), optimizer_.state());
}

std::vector<ParameterSlice> ShardedOptimizerBase::slices() const {
  return step_->slices(optimizer_.param_groups());
}

std::vector<SliceState> ShardedOptimizerBase::slice_states() const {
  return step_->slice_states(optimizer_.param_groups(), optimizer_.state());
}

void ShardedOptimizerBase::restore_slices(std::span<const SliceState> restored) {
  step_->restore_slices(optimizer_.param_groups(), optimizer_.state(), restored);
}

std::uint64_t ShardedOptimizerBase::skipped() const { return step_->skipped(); }

void ShardedOptimizerBase::take() { step_->take(optimizer_.param_groups(), optimizer_.state()); }

void ShardedOptimizerBase::require_savable() const {
  step_->require_whole();
  step_->require_gathered(optimizer_.param_groups(), optimizer_.state());
}

void ShardedOptimizerBase::load_state(const std::function<void()>& load) {
  load_fitting(optimizer_.param_groups(), optimizer_.state(), load);
  step_->take_over_loaded_state();
}

std::vector<torch::Tensor> ShardedOptimizerBase::trainable_parameters(const torch::nn::Module& module) {
  std::vector<torch::Tensor> parameters;
  for (const NamedTensor& item : distinct_parameters(tensors_of(module), true))
    parameters.push_back(item.tensor);
  return parameters;
}

}  // namespace lockstep
