// Sizes of memory that is mapped: whole pages, and places within it that begin where something has to.
#pragma once

#include <cstddef>
#include <cstdint>

namespace lockstep::base {

inline constexpr std::size_t page_bytes = 4096;

/// The least multiple of `to` that is not less.
constexpr std::size_t round_up(std::size_t bytes, std::size_t to = page_bytes) {
  return (bytes + to - 1) / to * to;
}

/// How far behind the beginning of its page a place is.
inline std::size_t offset_in_page(const void* place) {
  return reinterpret_cast<std::uintptr_t>(place) % page_bytes;
}

}  // namespace lockstep::base
