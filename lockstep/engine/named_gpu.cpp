#include "lockstep/engine/named_gpu.h"

#include <cstdint>

#include "lockstep/backend/gpu/gpu_engine.h"
#include "lockstep/base/error.h"
#include "lockstep/base/log.h"

namespace lockstep {
namespace {

cuda::Address address_of(std::span<const std::byte> memory) {
  return static_cast<cuda::Address>(reinterpret_cast<std::uintptr_t>(memory.data()));
}

}  // namespace

NamedGpu::NamedGpu(int device) : gpu_(Gpu::open(device)), events_(gpu_) {
  const Gpu::Current current(*gpu_);
  stream_ = gpu_->make_urgent_stream();
}

NamedGpu::~NamedGpu() {
  try {
    const Gpu::Current current(*gpu_);
    (void)gpu_->driver().destroy_stream(stream_);
  } catch (const Error& error) {  // the driver has ended, and its streams with it
    log::debug(error.what());
  }
}

void NamedGpu::require_own(std::span<const std::byte> memory, const std::string& what) const {
  const Gpu::Current current(*gpu_);
  if (!memory.empty()) gpu_->require_own(memory.data(), what);
}

std::unique_ptr<NamedGpu::Mark> NamedGpu::mark(void* stream) {
  const Gpu::Current current(*gpu_);
  auto* const of_program = static_cast<cuda::Stream>(stream);
  if (gpu_->is_captured(of_program))
    throw Error(ErrorCode::unsupported,
                "a graph cannot capture named operations: submit them between graphs");
  auto mark = std::make_unique<Mark>(shared_from_this(), events_.take());
  mark_stream_of_program(*gpu_, mark->event(), of_program, {});
  return mark;
}

void NamedGpu::follow(const Mark& mark) {
  const Gpu::Current current(*gpu_);
  const Gpu::BesideCaptures beside(*gpu_);
  gpu_->driver().check(gpu_->driver().make_wait(stream_, mark.event(), 0),
                       "waiting for the program's stream");
}

void NamedGpu::read(std::span<const std::byte> there, std::span<std::byte> here) {
  if (there.empty()) return;
  const Gpu::Current current(*gpu_);
  const Gpu::BesideCaptures beside(*gpu_);
  await(gpu_->driver().copy_down(here.data(), address_of(there), there.size(), stream_));
}

void NamedGpu::write(std::span<const std::byte> here, std::span<std::byte> there) {
  if (here.empty()) return;
  const Gpu::Current current(*gpu_);
  const Gpu::BesideCaptures beside(*gpu_);
  await(gpu_->driver().copy_up(address_of(there), here.data(), here.size(), stream_));
}

void NamedGpu::await(cuda::Result put) {
  gpu_->driver().check(put, "copying between a GPU and main memory");
  gpu_->driver().check(gpu_->driver().synchronize(stream_), "copying between a GPU and main memory");
}

}  // namespace lockstep
