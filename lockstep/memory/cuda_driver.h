// NVIDIA's driver, as far as Lockstep asks it for anything: devices, streams, events. It is loaded when a GPU's memory
// is first used, and nothing of CUDA is needed to build: these are the functions of cuda.h with the types that they
// have in the ABI (https://docs.nvidia.com/cuda/cuda-driver-api).
#pragma once

#include <cstddef>
#include <string>

#include "lockstep/base/loaded_library.h"

// What handles point to, as cuda.h has it.
struct CUctx_st;
struct CUstream_st;
struct CUevent_st;

namespace lockstep::cuda {

using Result = int;
using Context = CUctx_st*;
using Stream = CUstream_st*;
using Event = CUevent_st*;
using Address = unsigned long long;
struct Uuid {
  unsigned char bytes[16];
};

inline constexpr Result success = 0, invalid_value = 1, out_of_memory = 2, invalid_handle = 400,
                        not_ready = 600;
/// Kernels that went wrong, after which the context is of no use any more.
inline constexpr Result illegal_address = 700, launch_timeout = 702, launch_failed = 719;
inline constexpr unsigned stream_non_blocking = 1;
inline constexpr unsigned event_default = 0;
inline constexpr int attribute_device_ordinal = 9;
inline constexpr int capture_none = 0;
/// This thread's calls do no harm to a graph that another one captures.
inline constexpr int capture_mode_relaxed = 2;

class Driver {
 public:
  /// That of this process. Throws Error{unsupported} where there is none, with what to do.
  static const Driver& get();
  Driver(const Driver&) = delete;
  Driver& operator=(const Driver&) = delete;

  /// Throws Error{system}: what was being done, and what CUDA says of `result`. A kernel that went wrong is named as
  /// what it is: one that the program has run.
  void check(Result result, const std::string& doing) const;

  Result (*device_count)(int* count);
  Result (*device_name)(char* name, int length, int device);
  Result (*device_uuid)(Uuid* uuid, int device);
  Result (*retain_context)(Context* context, int device);
  Result (*release_context)(int device);
  Result (*push_context)(Context context);
  Result (*pop_context)(Context* context);
  Result (*priority_range)(int* least, int* greatest);
  Result (*make_stream)(Stream* stream, unsigned flags, int priority);
  Result (*destroy_stream)(Stream stream);
  Result (*make_wait)(Stream stream, Event event, unsigned flags);
  Result (*capture_status)(Stream stream, int* status);
  /// Swaps this thread's mode with `mode`.
  Result (*exchange_capture_mode)(int* mode);
  Result (*make_event)(Event* event, unsigned flags);
  Result (*destroy_event)(Event event);
  Result (*record_event)(Event event, Stream stream);
  Result (*query_event)(Event event);
  Result (*elapsed_ms)(float* milliseconds, Event begin, Event end);
  Result (*allocate)(Address* address, std::size_t bytes);
  Result (*free)(Address address);
  Result (*copy_down)(void* to, Address from, std::size_t bytes, Stream stream);
  Result (*copy_up)(Address to, const void* from, std::size_t bytes, Stream stream);
  Result (*synchronize)(Stream stream);
  Result (*pointer_attribute)(void* value, int attribute, Address address);

 private:
  Driver();
  std::string text_of(Result result) const;

  LoadedLibrary library_;
  Result (*error_name_)(Result result, const char** name);
  Result (*error_text_)(Result result, const char** text);
};

}  // namespace lockstep::cuda
