// An optimizer's state of which each rank has a share, and the next rank a copy of that: what one rank's death takes is still there.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/group/group.h"
#include "lockstep/train/replicas/named_tensor.h"

namespace lockstep {

/// Parameters are shared out whole, by bytes. A rank's optimizer steps those that it holds, and the others' values come from their owners.
/// Thread safety: none.
class SpreadState {
 public:
  /// Borrows `optimizer`, whose step() has to leave out parameters without gradients, as libtorch's do.
  SpreadState(std::vector<NamedTensor> parameters, torch::optim::Optimizer& optimizer);

  /// Of a rank that comes to others: what it holds is not theirs.
  void forget() { held_.assign(held_.size(), 0); }
  /// Collective: every rank gets all values, and the state of what it is to hold among these ranks, from those that hold it. Where it
  /// fails, each holds what it held and what it has got: nobody gives anything up before all have theirs. Throws Error{corrupt_data}, on
  /// all ranks, where nobody has the state of some parameter. Cost: a broadcast of the model and of the state that moves.
  void deal(const Group& group);
  /// Before the optimizer's step: takes the gradients of parameters that others hold.
  void leave_others();
  /// Collective, after it: all values everywhere. Cost: a broadcast of the model.
  void gather(const Group& group) const;
  /// Collective: `root`'s optimizer has all state until leave_others(), or some of it where this fails. Cost: a broadcast of it.
  void gather_state(const Group& group, int root);

 private:
  using Chosen = std::vector<bool>;  // of the parameters

  /// Collective: the state of what `moves`, from `source` to those that have it `wanted`.
  void hand_on(const Group& group, int source, const Chosen& moves, const Chosen& wanted);
  std::string state_of(const Chosen& chosen) const;
  void take_state(const std::string& text, const Chosen& wanted);
  void keep_state(const Chosen& kept) const;
  void broadcast_values(const Group& group, const std::vector<int>& from) const;

  std::vector<NamedTensor> parameters_;
  torch::optim::Optimizer& optimizer_;
  std::vector<std::uint8_t> held_;  // their state is here
  std::vector<int> owners_;         // in the group of the last deal(); the next rank has the copy
};

}  // namespace lockstep
