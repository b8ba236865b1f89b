// Tensors on a GPU stay there where the group's calls can be carried there (docs/gpu.md): this says so, and in the words
// of the core: whose memory, and which stream.
#pragma once

#include <torch/torch.h>

#include <cstddef>
#include <optional>
#include <span>

#include "lockstep/base/memory_place.h"
#include "lockstep/group/collectives.h"
#include "lockstep/group/group.h"

namespace lockstep {

/// The kind of device that is a GPU; tests without one have another.
extern c10::DeviceType gpu_kind;

/// Whether calls of `group` on this rank's `device` are carried there; the same on all ranks. Where they are not, and it is a
/// GPU, the first rank says why, once. Collective at the first time for a GPU. Throws Error as a first call there does.
bool stays_on_gpu(const Group& group, torch::Device device);

/// The GPU's memory in the order of the stream that is libtorch's current one; main memory for what does not stay there.
/// Collective as stays_on_gpu() is.
MemoryPlace place_of(const Group& group, torch::Device device);

/// The same whether calls can be carried there or not. Not collective.
MemoryPlace place_on(torch::Device device);

/// Of a tensor on `device`: where that is a GPU, the first rank says, once, that such go through main memory, because of `why`.
void say_leaves_gpu(const Group& group, torch::Device device, const char* why);

/// A tensor for what a call makes, whose memory nothing on its device uses any more: from any thread. Who waits for the call uses it by
/// used_now().
torch::Tensor empty_for_result(torch::IntArrayRef sizes, const torch::TensorOptions& options);
/// Its memory is another tensor's only after what libtorch's current stream has got by the time at which it is given back.
void used_now(const torch::Tensor& tensor);

/// `work`, of a call that place_of() put on a GPU: its wait() makes libtorch's current stream wait, whichever that is by then.
Work in_current_stream(Work work, torch::Device device);

/// The elements of a contiguous tensor, wherever it is, for calls; if it `is_written`, autograd is told.
std::span<std::byte> bytes_for_calls(const torch::Tensor& tensor, bool is_written);

}  // namespace lockstep
