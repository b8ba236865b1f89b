// A kind of device whose memory is no main memory, for tests of models on a GPU where there is none. Its
// tensors compute on the CPU, in copies. To libtorch it is an HPU, for which it has no kernels of its own; to Python's, where that has CUDA, which
// allows no HPU beside, a PrivateUse1, whose modules C++ cannot move.
#pragma once

#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/torch.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>

namespace lockstep::test {

/// As many as there are. Ranks that are threads need one each: libtorch runs backward on a thread for each
/// device, where a rank waits for the others.
inline constexpr int fake_devices = 4;

#ifdef LOCKSTEP_FAKE_IS_PRIVATEUSE1
#define LOCKSTEP_FAKE_KIND PrivateUse1
#else
#define LOCKSTEP_FAKE_KIND HPU
#endif
inline constexpr c10::DeviceType fake_kind = c10::DeviceType::LOCKSTEP_FAKE_KIND;

/// Its memory holds every byte inverted: who takes it for main memory reads garbage, and leaves some.
inline torch::Device fake_device(int index) { return {fake_kind, static_cast<torch::DeviceIndex>(index)}; }

/// When a device came to a mark of its stream; 0: it has not.
struct FakeMark {
  std::atomic<std::int64_t> ns = 0;
  void set() { ns = std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1); }
};

/// Where fake devices have their memory. By default that is main memory, with every byte inverted.
struct FakeDeviceMemory {
  void* (*allocate)(int device, std::size_t bytes);
  void (*release)(void* memory);
  void (*read)(const void* from, void* to, std::size_t bytes);   ///< into main memory
  void (*write)(const void* from, void* to, std::size_t bytes);  ///< out of it
  /// Sets it when the device's stream comes to it: at once, by default.
  void (*mark)(int device, std::shared_ptr<FakeMark> mark) = [](int, std::shared_ptr<FakeMark> mark) {
    mark->set();
  };
};
/// To be changed before the first tensor is made on such a device.
extern FakeDeviceMemory fake_device_memory;

/// What LOCKSTEP_TEST_DEVICE says (see docs/gpu.md): "cuda", the GPU of this number; "cuda:0", that one for
/// all, which is also what a libtorch with CUDA is tested on, since it takes no other kind of device beside
/// the CPU. Otherwise a fake device.
inline torch::Device other_device(int index) {
  const char* const said = std::getenv("LOCKSTEP_TEST_DEVICE");
  if (said == nullptr && !c10::impl::hasDeviceGuardImpl(torch::kCUDA)) return fake_device(index);
  const torch::Device device{std::string(said != nullptr ? said : "cuda:0")};
  return device.has_index() ? device : torch::Device(device.type(), static_cast<torch::DeviceIndex>(index));
}

}  // namespace lockstep::test
