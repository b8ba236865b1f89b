// Ranks for tests of devices: threads, or processes where LOCKSTEP_TEST_DEVICE names one GPU for all of them
// ("cuda:0"), because libtorch runs all backwards of a GPU on one thread of a process.
#pragma once

#include <torch/torch.h>

#include <functional>
#include <vector>

#include "lockstep/group/group.h"
#include "lockstep/train/tensor/ranks_test.h"

namespace lockstep::test {

/// As run_ranks(). Processes print what they expected and did not find; what `rank_main` writes to memory
/// stays with them. REQUIRES: nothing has used the GPU in this process before, so: a process for each test.
std::vector<Ending> run_device_ranks(int ranks, const std::function<void(Group)>& rank_main);

/// The same, where no rank may fail.
void on_device_ranks(int ranks, const std::function<void(Group)>& rank_main);

/// This rank's (fake_device_test.h).
torch::Device device_of(const Group& group);

using Tensors = std::vector<torch::Tensor>;

/// Copies that share no memory with them.
Tensors on_cpu(const Tensors& tensors);
/// On the CPU, but for what a GPU rounds otherwise.
void expect_close(const Tensors& found, const Tensors& expected);

}  // namespace lockstep::test
