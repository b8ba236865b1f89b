// Libtorch's made-up device (fake_device_test.h) on the stand-in's GPUs, so that collectives are carried there, as on real ones.
#pragma once

#include <cstddef>
#include <cstring>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "lockstep/train/tensor/fake_device_test.h"
#include "tests/gpu/standin.h"

namespace lockstep::test {

/// As libtorch keeps memory that tensors gave back: it waits for nothing, and is another tensor's next. What has no stream but the default
/// one here waits for that one alone.
class KeptMemory {
 public:
  static KeptMemory& instance() {
    static auto* const immortal = new KeptMemory;
    return *immortal;
  }

  void* take(int device, std::size_t bytes) {
    {
      const std::lock_guard lock(mutex_);
      auto& idle = idle_[{device, bytes}];
      if (!idle.empty()) {
        void* const memory = idle.back();
        idle.pop_back();
        return memory;
      }
    }
    void* memory = standin::allocate(device, bytes);
    if (memory == nullptr && give_back(device)) memory = standin::allocate(device, bytes);
    const std::lock_guard lock(mutex_);
    if (memory != nullptr) sizes_[memory] = bytes;
    return memory;
  }
  void keep(void* memory) {
    const std::lock_guard lock(mutex_);
    idle_[{standin::device_of(memory), sizes_.at(memory)}].push_back(memory);
  }

 private:
  /// Waits for all that the device does.
  bool give_back(int device) {
    std::vector<void*> given;
    {
      const std::lock_guard lock(mutex_);
      for (auto& [of, idle] : idle_) {
        if (of.first == device) given.insert(given.end(), idle.begin(), idle.end());
        if (of.first == device) idle.clear();
      }
      for (void* const memory : given) sizes_.erase(memory);
    }
    for (void* const memory : given) standin::release(memory);
    return !given.empty();
  }

  std::mutex mutex_;
  std::map<std::pair<int, std::size_t>, std::vector<void*>> idle_;
  std::map<void*, std::size_t> sizes_;
};

/// From the first tensor there on. REQUIRES: there was none.
inline void put_fake_devices_on_standin() {
  // The device computes at once, so what is on the stream has to be through before.
  static const auto seen = [](const void* on_gpu) {
    standin::synchronize(nullptr, standin::device_of(on_gpu));
    return standin::host(on_gpu);
  };
  fake_device_memory = {
      .allocate = [](int device, std::size_t bytes) { return KeptMemory::instance().take(device, bytes); },
      .release = [](void* memory) { KeptMemory::instance().keep(memory); },
      .read = [](const void* from, void* to, std::size_t bytes) { std::memcpy(to, seen(from), bytes); },
      .write = [](const void* from, void* to, std::size_t bytes) { std::memcpy(seen(to), from, bytes); },
      .mark =
          [](int device, std::shared_ptr<FakeMark> mark) {
            standin::launch(
                nullptr, [mark = std::move(mark)] { mark->set(); }, device);
          },
  };
}

}  // namespace lockstep::test
