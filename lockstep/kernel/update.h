// The last step of training in one pass over memory: the gradients of all ranks are added, and the sum moves
// the parameters and the optimizer's state. Separate passes would read and write each of these again, and
// memory is all that they cost.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <variant>

#include "lockstep/base/dtype.h"

namespace lockstep::kernel {

/// A slice of parameters with all that belongs to it. Arrays of `elements` each, aligned as their type is; no
/// two overlap.
struct UpdateSlice {
  /// Of gradients and parameters: f32, f64, f16 or bf16. State and sums are f64 for f64, and f32 otherwise.
  Dtype dtype = Dtype::f32;
  std::size_t elements = 0;
  /// Of each rank, added in this order. One at least.
  std::span<const std::byte* const> gradients = {};
  /// What their sum is multiplied by: 1/ranks for an average, a factor that clips it, the inverse of a
  /// loss's.
  double gradient_scale = 1.0;
  std::byte* parameters = nullptr;
  /// Halves: the parameters as f32, of which `parameters` are the rounded copy. Null otherwise.
  float* master = nullptr;
};

/// Stochastic gradient descent as torch::optim::SGD has it:
///   d = g + weight_decay p;  v = momentum v + (1 - dampening) d (the first time v = d);
///   p -= learning_rate (nesterov ? d + momentum v : v)
struct SgdStep {
  double learning_rate = 0;
  double momentum = 0;
  double dampening = 0;
  double weight_decay = 0;
  bool nesterov = false;
  bool is_first = false;  ///< `velocity` holds nothing yet
};

/// `velocity`: the state v; null without momentum.
/// The bits of the result depend on nothing but the arguments, not on how slices are cut. Throws
/// Error{invalid_argument}: a type that is none of those above, no gradient, halves without a master.
void update_sgd(const UpdateSlice& slice, void* velocity, const SgdStep& step);

/// Adam and AdamW as torch::optim has them (Kingma & Ba 2015; Loshchilov & Hutter 2019):
///   AdamW: p *= 1 - learning_rate weight_decay;  Adam: g += weight_decay p;
///   m = beta1 m + (1 - beta1) g;  v = beta2 v + (1 - beta2) g^2;
///   p -= learning_rate / (1 - beta1^t) * m / (sqrt(v) / sqrt(1 - beta2^t) + epsilon)
struct AdamStep {
  double learning_rate = 0;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0;
  bool is_decoupled = false;  ///< AdamW
  std::uint64_t t = 1;        ///< steps with this one
};

/// `first`, `second`: the state m and v, zero before the first step. Otherwise as update_sgd().
void update_adam(const UpdateSlice& slice, void* first, void* second, const AdamStep& step);

/// One step of either.
using UpdateStep = std::variant<SgdStep, AdamStep>;

}  // namespace lockstep::kernel
