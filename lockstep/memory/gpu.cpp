#include "lockstep/memory/gpu.h"

#include <fmt/core.h>

#include <array>

#include "lockstep/base/env.h"
#include "lockstep/base/error.h"
#include "lockstep/base/log.h"

namespace lockstep {

std::shared_ptr<Gpu> Gpu::open(int device) { return std::shared_ptr<Gpu>(new Gpu(device)); }

Gpu::Gpu(int device) : driver_(cuda::Driver::get()), device_(device) {
  int count = 0;
  driver_.check(driver_.device_count(&count), "counting GPUs");
  if (device < 0 || device >= count) {
    const auto visible = env::text("CUDA_VISIBLE_DEVICES");
    throw Error(ErrorCode::unsupported,
                fmt::format("there is no GPU {}: this process sees {}{}", device, count,
                            visible ? fmt::format(" (CUDA_VISIBLE_DEVICES={})", *visible) : ""));
  }
  driver_.check(driver_.retain_context(&context_, device), fmt::format("opening GPU {}", device));
}

Gpu::~Gpu() { (void)driver_.release_context(device_); }

Gpu::Current::Current(const Gpu& gpu) : driver_(gpu.driver_) {
  driver_.check(driver_.push_context(gpu.context_), fmt::format("turning to GPU {}", gpu.device_));
}

Gpu::Current::~Current() {
  cuda::Context before = nullptr;
  (void)driver_.pop_context(&before);
}

std::string Gpu::uuid() const {
  cuda::Uuid uuid{};
  driver_.check(driver_.device_uuid(&uuid, device_), fmt::format("asking GPU {} who it is", device_));
  std::string text = "GPU-";
  for (const unsigned char byte : uuid.bytes) text += fmt::format("{:02x}", byte);
  return text;
}

std::string Gpu::name() const {
  std::array<char, 256> text{};
  driver_.check(driver_.device_name(text.data(), static_cast<int>(text.size()), device_),
                fmt::format("asking GPU {} for its name", device_));
  return text.data();
}

void Gpu::require_own(const void* memory, const std::string& what) const {
  int owner = -1;
  const auto address = static_cast<cuda::Address>(reinterpret_cast<std::uintptr_t>(memory));
  const cuda::Result result = driver_.pointer_attribute(&owner, cuda::attribute_device_ordinal, address);
  if (result == cuda::invalid_value) {
    throw_invalid_argument(
        fmt::format("{} is main memory, but the call is for GPU {}: copy it there, or call without a device",
                    what, device_));
  }
  driver_.check(result, "asking whose memory " + what + " is");
  if (owner != device_)
    throw_invalid_argument(fmt::format("{} is on GPU {}, but the call is for GPU {}", what, owner, device_));
}

cuda::Stream Gpu::make_urgent_stream() const {
  int least = 0, greatest = 0;
  driver_.check(driver_.priority_range(&least, &greatest), "asking for the priorities of streams");
  cuda::Stream stream = nullptr;
  driver_.check(driver_.make_stream(&stream, cuda::stream_non_blocking, greatest), "making a stream");
  return stream;
}

bool Gpu::is_captured(cuda::Stream stream) const {
  int capture = cuda::capture_none;
  const cuda::Result asked = driver_.capture_status(stream, &capture);
  if (asked != cuda::invalid_handle && asked != cuda::invalid_value)
    driver_.check(asked, "asking for a stream's graph");
  return capture != cuda::capture_none;
}

GpuEvents::~GpuEvents() {
  try {
    const Gpu::Current current(*gpu_);
    for (const cuda::Event event : idle_) (void)gpu_->driver().destroy_event(event);
  } catch (const Error& error) {  // the driver has ended, and its events with it
    log::debug(error.what());
  }
}

cuda::Event GpuEvents::take() {
  {
    const std::lock_guard lock(mutex_);
    if (!idle_.empty()) {
      const cuda::Event event = idle_.back();
      idle_.pop_back();
      return event;
    }
  }
  cuda::Event event = nullptr;
  gpu_->driver().check(gpu_->driver().make_event(&event, cuda::event_default), "making an event");
  return event;
}

void GpuEvents::put_back(cuda::Event event) {
  const std::lock_guard lock(mutex_);
  idle_.push_back(event);
}

}  // namespace lockstep
