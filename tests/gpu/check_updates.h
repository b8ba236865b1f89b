// Optimizers' steps on a GPU (group/gpu_update.h) compared, bit for bit, with kernel/update.h's in main memory.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>

#include "lockstep/base/memory_place.h"
#include "lockstep/group/group.h"

namespace lockstep::testing {

/// A GPU's memory, for a program that cannot read it.
struct GpuAccess {
  MemoryPlace place;
  /// `on_gpu` is where it begins; for calls of all ranks that share the GPU.
  std::function<std::shared_ptr<void>(std::size_t bytes, void** on_gpu)> allocate;
  /// Each is over when it returns, and comes after all that the place's stream has got.
  std::function<void(void* on_gpu, const void* from, std::size_t bytes)> write;
  std::function<void(void* to, const void* on_gpu, std::size_t bytes)> read;
};

/// Collective: every type and rule, of all ranks together (of one: of tensors of its own alone), of aligned and other memory. Throws
/// std::runtime_error with what differs, where.
void check_updates(const Group& group, const GpuAccess& access);

}  // namespace lockstep::testing
