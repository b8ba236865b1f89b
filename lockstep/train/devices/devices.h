// The devices of one process, by name.
#pragma once

#include <torch/torch.h>

#include <string>
#include <vector>

namespace lockstep {

/// "cpu:2": two slots of the CPU, each a thread with its share of the cores; "cpu": one. "cuda": all GPUs that
/// this process sees; "cuda:1": that very one. Several with commas between: "cuda:0,cuda:2". GPUs are counted
/// as CUDA does (device_for()). Throws Error: invalid_argument for other names and a GPU that is named twice;
/// unsupported if there is no such GPU.
std::vector<torch::Device> devices(const std::string& names);

}  // namespace lockstep
