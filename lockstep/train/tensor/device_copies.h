// Gradients of a GPU go to main memory and come back while it and this process go on with other things:
//
//   GPU      [ kernels ]                                 [ kernels of the next step ]
//                 \ copy()                              / copy()
//   memory          [ bucket ] are_over(): average it [ bucket ]
//
// A GPU copies at the full speed of its bus, and beside its kernels, only where memory is page-locked.
#pragma once

#include <c10/core/Event.h>
#include <torch/torch.h>

#include <cstddef>
#include <span>
#include <utility>
#include <vector>

namespace lockstep {

/// Copies between devices and main memory that may be under way. Memory in which they read or write has to
/// stay until they are over; the destructor waits.
class DeviceCopies {
 public:
  DeviceCopies() = default;
  DeviceCopies(DeviceCopies&&) = default;
  DeviceCopies& operator=(DeviceCopies&&) = delete;
  ~DeviceCopies();

  /// `to` becomes `from`, of the same shape: after what the current stream of their device does now, and at
  /// once where both are in main memory.
  void copy(const torch::Tensor& to, const torch::Tensor& from);
  /// `from`, in main memory, on `device`.
  torch::Tensor copied_to(torch::Device device, const torch::Tensor& from);

  /// What the current stream of `device` does from now on comes after them.
  void join(torch::Device device);

  /// Whether all of them are over. Does not wait.
  bool are_over();
  void wait();

 private:
  struct Last {
    c10::Stream stream;
    c10::Event event;
  };
  void note(torch::Device device);

  std::vector<Last> last_;  // of each stream that copies
};

/// Page-locks memory as long as it lives, where libtorch has CUDA; elsewhere, or where the system does not
/// allow it, copies are slower, and that is all. REQUIRES: `memory` begins on a page's border, and nothing
/// else lies in its pages: CUDA refuses to copy what is locked in part.
class PageLocked {
 public:
  explicit PageLocked(std::span<std::byte> memory);
  PageLocked(PageLocked&& other) noexcept : locked_(std::exchange(other.locked_, nullptr)) {}
  PageLocked& operator=(PageLocked&&) = delete;
  ~PageLocked();

 private:
  void* locked_ = nullptr;  // its begin; null if it is not
};

}  // namespace lockstep
