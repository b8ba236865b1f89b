// Libtorch's made-up device (fake_device_test.h) on the stand-in's GPUs, so that collectives are carried there, as on real ones.
#pragma once

#include <cstring>

#include "lockstep/train/tensor/fake_device_test.h"
#include "tests/gpu/standin.h"

namespace lockstep::test {

/// From the first tensor there on. REQUIRES: there was none.
inline void put_fake_devices_on_standin() {
  // The device computes at once, so what is on the stream has to be through before.
  static const auto seen = [](const void* on_gpu) {
    standin::synchronize(nullptr, standin::device_of(on_gpu));
    return standin::host(on_gpu);
  };
  fake_device_memory = {
      .allocate = standin::allocate,
      .release =
          [](void* memory) {
            standin::synchronize(nullptr, standin::device_of(memory));
            standin::release(memory);
          },
      .read = [](const void* from, void* to, std::size_t bytes) { std::memcpy(to, seen(from), bytes); },
      .write = [](const void* from, void* to, std::size_t bytes) { std::memcpy(seen(to), from, bytes); },
  };
}

}  // namespace lockstep::test
