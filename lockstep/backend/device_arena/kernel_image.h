// The kernels of kernel.cu, as they were built into this Lockstep.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <unordered_map>

#include "lockstep/backend/backend.h"
#include "lockstep/kernel/update.h"
#include "lockstep/memory/cuda_sharing.h"
#include "lockstep/memory/gpu.h"

namespace lockstep::device_arena {

/// Machine code for several kinds of GPU; empty: Lockstep was built without nvcc.
std::span<const std::byte> kernel_image();

/// For tests over a stand-in for CUDA's driver, which brings the kernels, where there are none here.
void take_kernels_of_the_driver();

/// Loaded into a GPU's context, once for all groups that use them. Thread safety: any number of threads at once.
class Kernels {
 public:
  /// REQUIRES: a Gpu::Current, and kernel_image(). Throws Error{system}, say where no image fits the GPU.
  static std::shared_ptr<Kernels> on(const std::shared_ptr<Gpu>& gpu);
  ~Kernels();
  Kernels(const Kernels&) = delete;
  Kernels& operator=(const Kernels&) = delete;

  /// That of the request's operation, type and reduction, or update.
  cuda::Function of(const Request& request);
  /// That of lists (update.h).
  cuda::Function of_list(const kernel::UpdateStep& step, Dtype dtype);
  const cuda::SharingDriver& sharing() const { return sharing_; }
  /// Multiprocessors of the GPU.
  int processors() const { return processors_; }

 private:
  explicit Kernels(std::shared_ptr<Gpu> gpu);
  template <class... Kind>
  cuda::Function find(const Kind&... kind);

  const std::shared_ptr<Gpu> gpu_;
  const cuda::SharingDriver& sharing_;
  cuda::Module module_ = nullptr;
  int processors_ = 0;
  std::mutex mutex_;                                       // of found_
  std::unordered_map<std::size_t, cuda::Function> found_;  // by what tells kernels apart
};

}  // namespace lockstep::device_arena
