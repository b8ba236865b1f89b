// One GPU of this process: what collectives on its memory are put together from.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "lockstep/memory/cuda_driver.h"

namespace lockstep {

/// Thread safety: any number of threads at once. Calls of CUDA need its context: see Current.
class Gpu {
 public:
  /// Number `device` of those that this process sees. Throws Error: unsupported (no driver, no such device), system.
  static std::shared_ptr<Gpu> open(int device);
  ~Gpu();
  Gpu(const Gpu&) = delete;
  Gpu& operator=(const Gpu&) = delete;

  /// While it lives, this thread's calls go to the GPU. Throws Error{system} where the driver has ended.
  class Current {
   public:
    explicit Current(const Gpu& gpu);
    ~Current();
    Current(const Current&) = delete;
    Current& operator=(const Current&) = delete;

   private:
    const cuda::Driver& driver_;
  };
  /// While it lives, what this thread asks of events leaves graphs alone that other threads capture.
  class BesideCaptures {
   public:
    explicit BesideCaptures(const Gpu& gpu) : driver_(gpu.driver_) {
      (void)driver_.exchange_capture_mode(&mode_);
    }
    ~BesideCaptures() { (void)driver_.exchange_capture_mode(&mode_); }
    BesideCaptures(const BesideCaptures&) = delete;
    BesideCaptures& operator=(const BesideCaptures&) = delete;

   private:
    const cuda::Driver& driver_;
    int mode_ = cuda::capture_mode_relaxed;
  };

  int device() const { return device_; }
  /// The same in all processes that see it: "GPU-8f3c...".
  std::string uuid() const;
  /// "NVIDIA H100 80GB HBM3".
  std::string name() const;
  const cuda::Driver& driver() const { return driver_; }
  /// Throws Error{invalid_argument} unless the memory is this GPU's; the message begins with `what`.
  void require_own(const void* memory, const std::string& what) const;
  /// Beside the program's streams, and before them where the GPU can choose. REQUIRES: a Current. Throws Error{system}.
  cuda::Stream make_urgent_stream() const;
  /// Whether a graph captures what `stream` gets. REQUIRES: a Current. Throws Error{system}.
  bool is_captured(cuda::Stream stream) const;

 private:
  explicit Gpu(int device);

  const cuda::Driver& driver_;
  int device_;
  cuda::Context context_ = nullptr;
};

/// Marks in streams, used again and again: making one takes longer than a small call. REQUIRES of take(): a Current.
class GpuEvents {
 public:
  explicit GpuEvents(std::shared_ptr<Gpu> gpu) : gpu_(std::move(gpu)) {}
  ~GpuEvents();
  GpuEvents(const GpuEvents&) = delete;
  GpuEvents& operator=(const GpuEvents&) = delete;

  cuda::Event take();
  void put_back(cuda::Event event);

 private:
  std::shared_ptr<Gpu> gpu_;
  std::mutex mutex_;
  std::vector<cuda::Event> idle_;
};

}  // namespace lockstep
