// Gradients on a GPU that its ranks share, whose sum moves parameters there: an all_reduce with an optimizer's step at its end.
#pragma once

#include "lockstep/kernel/update.h"
#include "lockstep/schedule/call.h"

namespace lockstep {

/// What moves them. The ranks' `own` are together all elements, and of each one rank's; all else is the same on all of them.
struct GpuUpdate {
  kernel::UpdateStep step;
  double gradient_scale = 1;  ///< what the sum is multiplied by
  Range own;                  ///< elements for which this rank keeps the state
  /// Arrays of own.count elements in the rank's memory for calls (allocate_on_gpu): the optimizer's state, null where it has none, and
  /// halves' parameters in f32.
  const void *first = nullptr, *second = nullptr, *master = nullptr;
};

}  // namespace lockstep
