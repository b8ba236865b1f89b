// A program names its device once, and each rank of a host is to get a GPU of its own.
#pragma once

#include <c10/core/Stream.h>
#include <torch/torch.h>

#include <optional>
#include <string>

#include "lockstep/group/group.h"

namespace lockstep {

/// `name` is "cpu", "cuda" (this rank's GPU: the first rank on a host has the first one, and so on) or
/// "cuda:1" (that very one). GPUs are counted as CUDA does, which leaves out those that CUDA_VISIBLE_DEVICES
/// does not name. `group` is the world: a subgroup counts its own ranks. Not collective; ranks of one host
/// that see the same GPUs get the same errors. Throws Error: invalid_argument for any other name; unsupported
/// if libtorch was built without CUDA, there is no such GPU, or for "cuda" this host has more ranks than
/// GPUs.
torch::Device device_for(const Group& group, const std::string& name);

/// `device` with the number of the one that is libtorch's current one, unless it has a number, or is main memory.
torch::Device with_number(torch::Device device);
/// Libtorch's, of this thread.
c10::Stream current_stream(torch::Device device);
/// What `later` is given from now on comes after what `earlier` was given.
void let_follow(const c10::Stream& earlier, const c10::Stream& later);
/// Waits for what libtorch's current stream of `device` was given; main memory has none.
void await_device(torch::Device device);

/// What this process sees.
struct VisibleGpus {
  std::optional<int> count;             ///< nullopt: libtorch was built without CUDA
  std::optional<std::string> variable;  ///< CUDA_VISIBLE_DEVICES

  static VisibleGpus of_this_process();
};

/// What device_for() does, for rank `local_rank` of `local_size` on a host.
torch::Device choose_device(const std::string& name, int local_rank, int local_size, const VisibleGpus& gpus);

}  // namespace lockstep
