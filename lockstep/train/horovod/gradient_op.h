// How gradients of several ranks become one, and how they travel: what DistributedOptimizer and
// DistributedGradientTape have in common.
#pragma once

#include <torch/torch.h>

#include "lockstep/base/error.h"

namespace lockstep {

enum class GradientOp {
  average,
  sum,
  adasum,  ///< see adasum.h
};

/// How gradients of f32 and f64 travel.
enum class Compression { none, fp16, bf16 };

/// REQUIRES: not none.
inline torch::ScalarType half_of(Compression compression) {
  return compression == Compression::fp16 ? torch::kHalf : torch::kBFloat16;
}

/// Throws Error{invalid_argument} for a compression that the operation does not have.
inline void require_compressible(GradientOp op, Compression compression) {
  if (op == GradientOp::adasum && compression != Compression::none)
    throw_invalid_argument("compression is for GradientOp::average and sum only");
}

}  // namespace lockstep
