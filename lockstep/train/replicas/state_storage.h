// What differs between an optimizer whose state every rank has as a whole and one of which each rank keeps a
// part: here, in one place, instead of wherever an optimizer is saved, loaded or stepped.
#pragma once

#include <torch/torch.h>

#include <span>
#include <vector>

#include "lockstep/train/replicas/named_tensor.h"
#include "lockstep/train/replicas/sharded_state.h"

namespace lockstep {

/// Has no state of its own. REQUIRES, of each call: the optimizer that storage_of() was asked about.
class StateStorage {
 public:
  virtual ~StateStorage() = default;

  /// Whether each rank has a part, and a step averages the gradients.
  virtual bool is_sharded() const = 0;
  /// Whether this rank's gradients are averages of all of every parameter, so that ranks decide alike about
  /// them.
  virtual bool has_all_gradients(const torch::optim::Optimizer& optimizer) const = 0;

  /// Collective where state is sharded between hosts: rank 0 has all of it afterwards, until the next step.
  virtual void gather(const torch::optim::Optimizer& optimizer) const = 0;

  /// This rank's part of each parameter of the optimizer, in an order that is the same on all ranks.
  /// `tensors`: the module's. Throws Error{invalid_argument} if a parameter is not among them.
  virtual std::vector<ParameterSlice> slices(const torch::optim::Optimizer& optimizer,
                                             std::span<const NamedTensor> tensors) const = 0;
  /// Collective. What is kept for each of slices(): to be read until the next step. Throws
  /// Error{invalid_argument} where every rank has all of it: such state is saved as a whole.
  virtual std::vector<SliceState> slice_states(const torch::optim::Optimizer& optimizer) const = 0;
  /// Collective where state is sharded. Instead of all state there is: these, one for each of slices(). The
  /// parameters and options that go with it are in place.
  virtual void restore(torch::optim::Optimizer& optimizer, std::span<const SliceState> states) const = 0;
};

/// As long as the program runs.
const StateStorage& storage_of(const torch::optim::Optimizer& optimizer);

}  // namespace lockstep
