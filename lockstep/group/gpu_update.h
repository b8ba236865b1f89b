// Optimizers' steps on GPUs in one pass over memory, by kernels of Lockstep's own: of tensors of one rank, or of the parameters of all ranks
// that share the GPU, together with the sum of their gradients.
#pragma once

#include <cstddef>
#include <span>

#include "lockstep/backend/gpu/gpu_update.h"
#include "lockstep/base/dtype.h"
#include "lockstep/base/memory_place.h"
#include "lockstep/execute/work.h"
#include "lockstep/group/group.h"
#include "lockstep/kernel/update.h"

namespace lockstep {

/// Whether update_on_gpu() works on this GPU: this Lockstep has kernels for it, and its driver takes them.
bool can_update_on_gpu(int device);

/// Arrays of `elements` on a GPU: a gradient and its parameters, and as kernel::UpdateSlice and update_sgd() have them, or null.
struct TensorUpdate {
  const void* gradient = nullptr;
  void* parameters = nullptr;
  void *first = nullptr, *second = nullptr;  ///< the optimizer's state
  void* master = nullptr;
  std::size_t elements = 0;
};

/// Takes one step of them all, when the place's stream comes to it; the host goes on. A launch for each 64 tensors. The bits are those of
/// kernel::update_sgd() and update_adam(). REQUIRES: can_update_on_gpu(); parameters of type f32, f64, f16 or bf16. Throws Error{system}.
void update_on_gpu(const MemoryPlace& place, Dtype dtype, const kernel::UpdateStep& step,
                   double gradient_scale, std::span<const TensorUpdate> tensors);

/// All ranks' gradients, and their parameters, which are the same before and after.
struct SharedUpdate {
  std::span<const std::byte> gradients;
  std::span<std::byte> parameters;
  Dtype dtype = Dtype::f32;
  GpuUpdate update;
};

/// Collective, an all_reduce in the order of calls and in the record: adds up all ranks' gradients and moves all ranks' parameters by the sum, in
/// one kernel for each update, as update_on_gpu() does of one rank. The first rank's gradients come first. Nothing has moved before all ranks have
/// come to it; a rank that dies then leaves parameters that are no model. REQUIRES: shares_gpu(); all memory is allocate_on_gpu()'s. Throws Error as
/// submit_on_gpu().
Work update_on_shared_gpu(const Group& group, const MemoryPlace& place,
                          std::span<const SharedUpdate> updates);

}  // namespace lockstep
