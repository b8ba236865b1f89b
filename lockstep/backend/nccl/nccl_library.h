// NCCL of this process, loaded when a call on a GPU's memory needs it: libnccl.so.2 of the system, or the one that
// libtorch has brought. Nothing of it is needed to build: these are the functions of nccl.h with the types that they
// have in the ABI (https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/api.html); where the header is, the tests are built
// only if they fit it (tests/gpu/nccl_header.cpp).
#pragma once

#include <array>
#include <climits>
#include <cstddef>
#include <string>

#include "lockstep/base/loaded_library.h"
#include "lockstep/memory/cuda_driver.h"

struct ncclComm;  // as nccl.h has it

namespace lockstep::nccl {

using Result = int;
using Comm = ncclComm*;
using DataType = int;
using RedOp = int;
struct UniqueId {
  std::array<char, 128> bytes;
};
/// As NCCL 2.18 has it, which is what `version` says; later ones take it.
struct Config {
  std::size_t size = sizeof(Config);
  unsigned magic = 0xcafebeef;
  unsigned version = 21800;
  int blocking = INT_MIN;
  int cga_cluster_size = INT_MIN;
  int min_ctas = INT_MIN;
  int max_ctas = INT_MIN;
  const char* net_name = nullptr;
  int split_share = INT_MIN;
};

inline constexpr Result success = 0, remote_error = 6, in_progress = 7;
inline constexpr DataType int8 = 0, uint8 = 1, int32 = 2, uint32 = 3, int64 = 4, uint64 = 5, float16 = 6,
                          float32 = 7, float64 = 8, bfloat16 = 9;
inline constexpr RedOp sum = 0, product = 1, max = 2, min = 3, average = 4;
inline constexpr int scalar_on_host = 1;
/// 2.18: configurations with split_share, averages, bf16, calls that do not block.
inline constexpr int oldest_version = 21800;

class Library {
 public:
  /// LOCKSTEP_NCCL_LIBRARY, or libnccl.so.2, which may be loaded already. Throws Error{unsupported}: there is none, or one
  /// that is too old.
  static const Library& get();
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  /// 22703 for 2.27.3.
  int version() const { return version_; }
  std::string version_text() const;
  /// What NCCL says of `result`: "unhandled cuda error (...)"; `comm` may be null.
  std::string text_of(Result result, Comm comm) const;

  Result (*get_unique_id)(UniqueId* id);
  Result (*init_rank)(Comm* comm, int ranks, UniqueId id, int rank, Config* config);
  Result (*finalize)(Comm comm);
  Result (*destroy)(Comm comm);
  Result (*abort)(Comm comm);
  Result (*async_error)(Comm comm, Result* error);
  Result (*all_reduce)(const void* input, void* output, std::size_t count, DataType type, RedOp op, Comm comm,
                       cuda::Stream stream);
  Result (*reduce)(const void* input, void* output, std::size_t count, DataType type, RedOp op, int root,
                   Comm comm, cuda::Stream stream);
  Result (*broadcast)(const void* input, void* output, std::size_t count, DataType type, int root, Comm comm,
                      cuda::Stream stream);
  Result (*all_gather)(const void* input, void* output, std::size_t count, DataType type, Comm comm,
                       cuda::Stream stream);
  Result (*reduce_scatter)(const void* input, void* output, std::size_t count, DataType type, RedOp op,
                           Comm comm, cuda::Stream stream);
  Result (*send)(const void* buffer, std::size_t count, DataType type, int peer, Comm comm,
                 cuda::Stream stream);
  Result (*recv)(void* buffer, std::size_t count, DataType type, int peer, Comm comm, cuda::Stream stream);
  Result (*group_start)();
  Result (*group_end)();
  Result (*make_scaled_sum)(RedOp* op, void* scalar, DataType type, int residence, Comm comm);
  Result (*free_op)(RedOp op, Comm comm);

 private:
  Library();

  LoadedLibrary library_;
  const char* (*error_text_)(Result result);
  const char* (*last_error_)(Comm comm);
  int version_ = 0;
};

}  // namespace lockstep::nccl
