// What a GPU's driver does for memory that several processes reach, and for kernels of Lockstep's own; beside cuda_driver.h, since
// most programs need none of it and an old driver may lack some.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "lockstep/memory/cuda_driver.h"

struct CUmod_st;
struct CUfunc_st;

namespace lockstep::cuda {

using Module = CUmod_st*;
using Function = CUfunc_st*;
/// Of another process's memory: what it tells those that open it.
struct IpcMemory {
  std::array<char, 64> bytes;
};

inline constexpr unsigned open_lazily = 1;
inline constexpr unsigned portable = 1, mapped_for_gpus = 2;
inline constexpr unsigned wait_for_at_least = 0;
inline constexpr int attribute_processors = 16;
inline constexpr Result already_registered = 712;

class SharingDriver {
 public:
  /// That of this process. Throws Error{unsupported} where there is none, or one that is too old.
  static const SharingDriver& get();
  SharingDriver(const SharingDriver&) = delete;
  SharingDriver& operator=(const SharingDriver&) = delete;

  Result (*load_module)(Module* module, const void* image);
  Result (*unload_module)(Module module);
  Result (*find_function)(Function* function, Module module, const char* name);
  Result (*launch)(Function function, unsigned blocks_x, unsigned blocks_y, unsigned blocks_z,
                   unsigned threads_x, unsigned threads_y, unsigned threads_z, unsigned shared_bytes,
                   Stream stream, void** arguments, void** extra);
  Result (*tell_memory)(IpcMemory* memory, Address address);
  Result (*open_memory)(Address* address, IpcMemory memory, unsigned flags);
  Result (*close_memory)(Address address);
  Result (*register_host)(void* memory, std::size_t bytes, unsigned flags);
  Result (*unregister_host)(void* memory);
  Result (*host_address)(Address* address, void* memory, unsigned flags);
  Result (*wait_for_value)(Stream stream, Address address, std::uint32_t value, unsigned flags);
  Result (*copy)(Address to, Address from, std::size_t bytes, Stream stream);
  Result (*copy_in)(Address to, const void* from, std::size_t bytes, Stream stream);
  Result (*fill_bytes)(Address to, unsigned char value, std::size_t bytes, Stream stream);
  Result (*attribute)(int* value, int attribute, int device);

 private:
  SharingDriver();

  LoadedLibrary library_;
};

}  // namespace lockstep::cuda
