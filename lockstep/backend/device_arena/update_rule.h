// Optimizers' steps as the kernels that take them know them (update.h).
#pragma once

#include <span>

#include "lockstep/backend/device_arena/kernel_image.h"
#include "lockstep/backend/device_arena/update.h"
#include "lockstep/base/dtype.h"
#include "lockstep/kernel/update.h"
#include "lockstep/memory/gpu.h"

namespace lockstep::device_arena {

UpdateRule rule_of(const kernel::UpdateStep& step, double gradient_scale);

/// Moves tensors of this rank alone, whose gradients and parameters have the type `dtype`, when `stream` comes to it: most_tensors of them by a
/// kernel. REQUIRES: a Gpu::Current; all have the state that the step needs, and a master if they are halves. Throws Error{system}.
void move_tensors(const Gpu& gpu, Kernels& kernels, cuda::Stream stream, Dtype dtype,
                  const kernel::UpdateStep& step, double gradient_scale,
                  std::span<const UpdateList::Tensor> tensors);

}  // namespace lockstep::device_arena
