// An optimizer of whose state each rank may have a part only, as checkpoints see it: of which parameters it
// keeps something, which elements of them are this rank's, and what it keeps for those.
#pragma once

#include <torch/torch.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "lockstep/train/optimizer/parameter_state.h"
#include "lockstep/train/replicas/named_tensor.h"

namespace lockstep {

/// Some elements of a parameter, counted in the order in which they lie in memory.
struct ParameterSlice {
  NamedTensor parameter{};
  std::size_t begin = 0;
  std::size_t elements = 0;  ///< 0: none are this rank's
};

/// What is kept for a slice. Arrays are one-dimensional and have its elements.
struct SliceState {
  std::uint64_t steps = 0;  ///< that the parameter has had; 0: it has no arrays
  StateArrays arrays{};     ///< the first of them; the others are undefined
  torch::Tensor master{};   ///< of halves: the parameter in f32; else undefined
};

/// The order in which the elements of a parameter lie in memory, as strides; empty: row-major.
std::vector<std::int64_t> order_of(const torch::Tensor& parameter);

/// An array of a SliceState of all of a parameter, as a tensor of these sizes whose elements lie in this
/// order.
torch::Tensor in_order(const torch::Tensor& flat, torch::IntArrayRef sizes,
                       const std::vector<std::int64_t>& order);

class ShardedState {
 public:
  virtual ~ShardedState() = default;

  /// Collective on several hosts, and on GPUs, elsewhere nothing: before save().
  virtual void gather_state() const = 0;

  /// Every parameter that is in a group of the optimizer, in an order that is the same on all ranks. Together
  /// the ranks' slices are all of it, those of a lower rank first.
  virtual std::vector<ParameterSlice> slices() const = 0;
  /// Collective. What is kept for each of slices(), as it lies in memory: to be read until the next step.
  virtual std::vector<SliceState> slice_states() const = 0;
  /// Collective. Instead of all state there is: these, one for each of slices(). The parameters and options
  /// that go with it are already in place, and `restored` has the arrays that they ask for.
  virtual void restore_slices(std::span<const SliceState> restored) = 0;
};

}  // namespace lockstep
