// A GPU and an NCCL for tests where there is neither: two libraries with the names and functions of NVIDIA's, which do on
// the CPU what those do on a GPU, as far as Lockstep asks them. Memory of a "GPU" is at addresses at which this process
// cannot read or write, so that who takes it for main memory dies; a stream is a thread, so that who does not wait for
// it sees old values. Ranks may be threads or processes. What libcuda.so.1 and libnccl.so.2 have beyond NVIDIA's is here.
//
//   STANDIN_GPUS=N             how many there are [4]
//   STANDIN_ONE_GPU=1          each process's GPU 0 is the same one to NCCL
//   STANDIN_NO_IPC=1           processes may not share their memory
//   STANDIN_NCCL_VERSION=N     what ncclGetVersion says [22703]
//   STANDIN_NCCL_DIR=FOLDER    where its ranks meet [TMPDIR]
#pragma once

#include <cstddef>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "lockstep/backend/nccl/nccl_library.h"
#include "lockstep/memory/cuda_driver.h"

namespace standin {

/// What the variable says, or else `otherwise`.
inline int number_from(const char* name, int otherwise) {
  const char* const text = std::getenv(name);
  return text == nullptr ? otherwise : std::atoi(text);
}

/// Where this process reads and writes the memory at a GPU's address; null: it is none of a GPU's.
std::byte* host(const void* on_gpu);
inline std::byte* host(lockstep::cuda::Address on_gpu) {
  return host(reinterpret_cast<const void*>(static_cast<std::uintptr_t>(on_gpu)));
}

/// The GPU whose memory it is. REQUIRES: one's.
int device_of(const void* on_gpu);

/// Memory of GPU `device`; until release().
void* allocate(int device, std::size_t bytes);
void release(void* on_gpu);
/// Allocations and streams and events that were made and not given back, of all GPUs.
std::size_t things_left();

/// A kernel: does `work` when all that was put on the stream before is through. Null: the default stream of `device`.
void launch(lockstep::cuda::Stream stream, std::function<void()> work, int device = 0);
/// Until the stream is through.
void synchronize(lockstep::cuda::Stream stream, int device = 0);
lockstep::cuda::Stream make_stream(int device);
void destroy_stream(lockstep::cuda::Stream stream);
/// Names of Lockstep's kernels that were launched since the last call of this, of all streams of the process, in order.
std::vector<std::string> take_kernels();
/// Copies from one place of a GPU to another, of all streams so far.
int copies();
/// From now on the GPU's functions say `result`, as after a kernel that went wrong. 0: no more.
void break_gpu(int device, lockstep::cuda::Result result);
/// A graph is being captured from the stream.
void capture(lockstep::cuda::Stream stream, bool does);

/// What NCCL was called for since the last call of this, of all communicators of the process, in order:
/// "all_reduce 8 x float32 sum".
std::vector<std::string> take_nccl_calls();
/// Of how many of them the largest call was since the last one of this.
std::size_t take_largest_nccl_group();
/// NCCL's communicators of this process say `result` when they are asked how they are. 0: no more.
void break_nccl(lockstep::nccl::Result result);
/// Communicators that were made and neither destroyed nor aborted.
int nccl_left();
/// How many were aborted in this process.
int nccl_aborted();

}  // namespace standin
