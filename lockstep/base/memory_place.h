// Where the buffers of a call lie: in main memory, or in a GPU's.
#pragma once

namespace lockstep {

/// In main memory, unless a device is said.
struct MemoryPlace {
  static constexpr int main_memory = -1;

  /// The GPU whose memory it is, counted as CUDA does in this process (CUDA_VISIBLE_DEVICES leaves others out).
  int device = main_memory;
  /// A cudaStream_t (CUstream) of that GPU; null: its default stream. The call comes after all that was put there
  /// before it, and Work::wait() makes what is put there later come after the call.
  void* stream = nullptr;

  bool is_on_gpu() const { return device != main_memory; }
};

}  // namespace lockstep
