// Ranks that train together begin equal: with the root's parameters, its optimizer's state, its settings. As
// Horovod has it, a program says when; DistributedDataParallel, ShardedOptimizer and load_checkpoint() do it
// themselves.
#pragma once

#include <torch/torch.h>

#include <string>
#include <vector>

#include "lockstep/group/group.h"
#include "lockstep/train/tensor/module_of.h"

namespace lockstep {

// What the template below calls.
void broadcast_parameters(const Group& group, const torch::nn::Module& module, int root);

/// Collective. The root's parameters and buffers into everybody's. Throws Error: mismatch if the models
/// differ (in what, on which rank); unsupported (a tensor that is no plain array). Cost: one broadcast for
/// each 4 MiB.
template <class Model>
void broadcast_parameters(const Group& group, const Model& model, int root = 0) {
  broadcast_parameters(group, module_of(model), root);
}

/// Collective. The root's options and state (momentum, step counts, ...) into everybody's optimizer, whatever
/// that had: also where only the root has any yet, because it restored a checkpoint, and where none has,
/// before the first step. Throws Error{invalid_argument} on all ranks unless their optimizers have parameter
/// groups of the same sizes, or where the root has its part of a ShardedOptimizer's state alone (gather_state()). Cost: a broadcast of the state, which the root has in memory twice meanwhile.
void broadcast_optimizer_state(const Group& group, torch::optim::Optimizer& optimizer, int root = 0);

/// Collective. The root's value is everybody's result: numbers, strings, tensors, and lists, tuples and
/// dictionaries of them, as libtorch's IValue has them. Other ranks' `value` is not looked at. Throws
/// Error{invalid_argument} for what cannot be written (on all ranks). Cost: two broadcasts.
c10::IValue broadcast_object(const Group& group, const c10::IValue& value, int root = 0);
/// Collective. Everybody's values, by rank. Otherwise as above; two all_gathers.
std::vector<c10::IValue> all_gather_object(const Group& group, const c10::IValue& value);

}  // namespace lockstep
