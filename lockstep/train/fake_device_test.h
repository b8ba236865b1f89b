// A kind of device whose memory is no main memory, for tests of models on a GPU where there is none. Its
// tensors compute on the CPU, in copies. To libtorch it is an HPU, for which it has no kernels of its own.
#pragma once

#include <torch/torch.h>

#include <cstdlib>
#include <string_view>

namespace lockstep::test {

/// As many as there are. Ranks that are threads need one each: libtorch runs backward on a thread for each
/// device, where a rank waits for the others.
inline constexpr int fake_devices = 4;

/// Its memory holds every byte inverted: who takes it for main memory reads garbage, and leaves some.
inline torch::Device fake_device(int index) { return {torch::kHPU, static_cast<torch::DeviceIndex>(index)}; }

/// A GPU if LOCKSTEP_TEST_DEVICE is "cuda" (see docs/gpu.md), or else a fake device.
inline torch::Device other_device(int index) {
  const char* const kind = std::getenv("LOCKSTEP_TEST_DEVICE");
  if (kind == nullptr || std::string_view(kind) != "cuda") return fake_device(index);
  return {torch::kCUDA, static_cast<torch::DeviceIndex>(index)};
}

}  // namespace lockstep::test
