// The kernels of kernel.h, as CUDA runs them. Built by nvcc alone, without a runtime library: see cmake/DeviceKernels.cmake.
#include "lockstep/backend/device_arena/kernel.h"
#include "lockstep/backend/device_arena/update.h"

namespace lockstep::device_arena {
namespace {

struct OnGpu {
  template <class T>
  __device__ __forceinline__ T* at(std::uint64_t address) const {
    return reinterpret_cast<T*>(address);
  }
  __device__ __forceinline__ std::uint64_t block() const { return blockIdx.x; }
  __device__ __forceinline__ std::uint64_t blocks() const { return gridDim.x; }
  __device__ __forceinline__ std::uint64_t thread() const { return threadIdx.x; }
  __device__ __forceinline__ std::uint64_t threads() const { return blockDim.x; }
  __device__ __forceinline__ void sync() const { __syncthreads(); }
  __device__ __forceinline__ std::uint64_t now_ns() const {
    std::uint64_t now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return now;
  }
  /// For all processes on the GPU, and the CPU.
  __device__ __forceinline__ void fence() const { __threadfence_system(); }
  __device__ __forceinline__ std::uint32_t add_one(std::uint32_t& counter) const {
    return atomicAdd_system(&counter, 1U);
  }
  template <class T>
  __device__ __forceinline__ T load(const T& value) const {
    return *const_cast<const volatile T*>(&value);
  }
  template <class T>
  __device__ __forceinline__ void store(T& place, T value) const {
    *const_cast<volatile T*>(&place) = value;
  }
  __device__ __forceinline__ Pack read_once(const Pack* from) const {
    const uint4 read = __ldcs(reinterpret_cast<const uint4*>(from));
    return {{read.x, read.y, read.z, read.w}};
  }
  __device__ __forceinline__ void write_once(Pack* to, const Pack& pack) const {
    __stcs(reinterpret_cast<uint4*>(to), make_uint4(pack.words[0], pack.words[1], pack.words[2], pack.words[3]));
  }
};

}  // namespace

#define LOCKSTEP_DEVICE_KERNEL(name, argument, task, element_bytes)                                   \
  extern "C" __global__ void __launch_bounds__(threads_of_a_block) name(const __grid_constant__ argument call) { \
    __shared__ BlockState state;                                                                      \
    run<task>(call, state, element_bytes, OnGpu());                                                   \
  }

#define LOCKSTEP_DEVICE_REDUCTION(name, type, op)                     \
  using ReduceTo_##name = Reduce<type, op>;                           \
  LOCKSTEP_DEVICE_KERNEL(lockstep_##name, KernelCall, ReduceTo_##name, sizeof(type))

LOCKSTEP_DEVICE_REDUCTIONS(LOCKSTEP_DEVICE_REDUCTION)
LOCKSTEP_DEVICE_KERNEL(lockstep_move, KernelCall, Move, 1)
LOCKSTEP_DEVICE_KERNEL(lockstep_barrier, KernelCall, Nothing, 1)

#define LOCKSTEP_DEVICE_LIST(name, type, move)                                                        \
  extern "C" __global__ void __launch_bounds__(threads_of_a_block) name(const __grid_constant__ UpdateList list) { \
    update_list<type, move>(list, OnGpu());                                                           \
  }
#define LOCKSTEP_DEVICE_UPDATE(name, type)                                                            \
  using SgdOf_##name = UpdateTogether<type, SgdMove>;                                                 \
  using AdamOf_##name = UpdateTogether<type, AdamMove>;                                               \
  LOCKSTEP_DEVICE_KERNEL(lockstep_sgd_##name, UpdateCall, SgdOf_##name, sizeof(type))                 \
  LOCKSTEP_DEVICE_KERNEL(lockstep_adam_##name, UpdateCall, AdamOf_##name, sizeof(type))               \
  LOCKSTEP_DEVICE_LIST(lockstep_sgd_list_##name, type, SgdMove)                                       \
  LOCKSTEP_DEVICE_LIST(lockstep_adam_list_##name, type, AdamMove)

LOCKSTEP_DEVICE_UPDATES(LOCKSTEP_DEVICE_UPDATE)

}  // namespace lockstep::device_arena
