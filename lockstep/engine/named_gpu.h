// A rank's GPU, whose memory named operations have. A program submits one on a stream of its own; the call comes later, when all ranks
// are there, on a stream of the set's, after what the program's stream had got by then.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "lockstep/base/memory_place.h"
#include "lockstep/memory/gpu.h"

namespace lockstep {

/// Thread safety: none, but for marks that go.
class NamedGpu : public std::enable_shared_from_this<NamedGpu> {
 public:
  /// Where a program's stream was.
  class Mark {
   public:
    Mark(std::shared_ptr<NamedGpu> gpu, cuda::Event event) : gpu_(std::move(gpu)), event_(event) {}
    ~Mark() { gpu_->events_.put_back(event_); }
    Mark(const Mark&) = delete;
    Mark& operator=(const Mark&) = delete;
    cuda::Event event() const { return event_; }
    const std::shared_ptr<NamedGpu>& gpu() const { return gpu_; }

   private:
    std::shared_ptr<NamedGpu> gpu_;
    cuda::Event event_;
  };

  /// Throws Error as Gpu::open() does.
  explicit NamedGpu(int device);
  ~NamedGpu();
  NamedGpu(const NamedGpu&) = delete;
  NamedGpu& operator=(const NamedGpu&) = delete;

  int device() const { return gpu_->device(); }
  /// Throws Error{invalid_argument} unless the memory is this GPU's; the message begins with `what`.
  void require_own(std::span<const std::byte> memory, const std::string& what) const;
  /// Of calls.
  MemoryPlace place() const { return {.device = gpu_->device(), .stream = stream_}; }
  /// Where the program's `stream` is now. Throws Error: invalid_argument (it is none of this GPU's), unsupported (a graph
  /// captures it).
  std::unique_ptr<Mark> mark(void* stream);
  /// What the calls' stream gets from now on comes after it. Throws Error{system}.
  void follow(const Mark& mark);

  // In the order of the calls' stream. They wait. Throw Error{system}.
  void read(std::span<const std::byte> there, std::span<std::byte> here);
  void write(std::span<const std::byte> here, std::span<std::byte> there);

 private:
  void await(cuda::Result put);

  std::shared_ptr<Gpu> gpu_;
  GpuEvents events_;
  cuda::Stream stream_ = nullptr;
};

}  // namespace lockstep
