// What a store to memory that another core has in its cache costs, begun before the store.
#pragma once

#include <cstddef>

namespace lockstep::kernel {

inline constexpr std::size_t line_bytes = 64;

/// Asks for the cache line at `address` in order to write it. Any address will do.
inline void own_line(std::byte* address) {
#if defined(__x86_64__)
  asm volatile("prefetchw %0" : : "m"(*address));  // the intrinsic is another instruction without -mprfchw
#else
  __builtin_prefetch(address, 1);
#endif
}

}  // namespace lockstep::kernel
