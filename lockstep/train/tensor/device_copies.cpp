#include "lockstep/train/tensor/device_copies.h"

#include <dlfcn.h>

#include <algorithm>

#include "lockstep/base/log.h"
#include "lockstep/train/tensor/device.h"

namespace lockstep {

DeviceCopies::~DeviceCopies() {
  try {
    wait();
  } catch (const std::exception& error) {  // the device has failed: nothing is copied any more
    log::debug(error.what());
  }
}

void DeviceCopies::copy(const torch::Tensor& to, const torch::Tensor& from) {
  const auto& device = to.device().is_cpu() ? from.device() : to.device();
  to.copy_(from, /*non_blocking=*/!device.is_cpu());
  note(device);
}

torch::Tensor DeviceCopies::copied_to(torch::Device device, const torch::Tensor& from) {
  const auto copied = from.to(device, /*non_blocking=*/!device.is_cpu());
  note(device);
  return copied;
}

void DeviceCopies::note(torch::Device device) {
  if (device.is_cpu()) return;
  const auto stream = current_stream(device);
  auto last = std::ranges::find(last_, stream, &Last::stream);
  if (last == last_.end()) last = last_.insert(last_.end(), {stream, c10::Event(device.type())});
  last->event.record(stream);
}

void DeviceCopies::join(torch::Device device) {
  const auto now = current_stream(device);
  for (const Last& last : last_) {
    if (last.stream != now) last.event.block(now);
  }
  last_.clear();
}

bool DeviceCopies::are_over() {
  std::erase_if(last_, [](const Last& last) { return last.event.query(); });
  return last_.empty();
}

void DeviceCopies::wait() {
  for (const Last& last : last_) last.event.synchronize();
  last_.clear();
}

namespace {

/// The CUDA runtime that libtorch has loaded; without libtorch's CUDA there is none.
struct CudaRuntime {
  using Register = int (*)(void*, std::size_t, unsigned);
  using Unregister = int (*)(void*);
  using LastError = int (*)();

  Register lock = reinterpret_cast<Register>(::dlsym(RTLD_DEFAULT, "cudaHostRegister"));
  Unregister unlock = reinterpret_cast<Unregister>(::dlsym(RTLD_DEFAULT, "cudaHostUnregister"));
  LastError take_error = reinterpret_cast<LastError>(::dlsym(RTLD_DEFAULT, "cudaGetLastError"));

  explicit operator bool() const { return lock != nullptr && unlock != nullptr && take_error != nullptr; }
};

}  // namespace

PageLocked::PageLocked(std::span<std::byte> memory) {
  const CudaRuntime cuda;
  if (memory.empty() || !cuda || !torch::cuda::is_available()) return;
  if (cuda.lock(memory.data(), memory.size(), 0) == 0) {
    locked_ = memory.data();
  } else {
    (void)cuda.take_error();  // libtorch would take it for its own
    log::debug("main memory for gradients could not be page-locked: copies from GPUs are slower");
  }
}

PageLocked::~PageLocked() {
  const CudaRuntime cuda;
  if (locked_ != nullptr && cuda.unlock(locked_) != 0) (void)cuda.take_error();
}

}  // namespace lockstep
