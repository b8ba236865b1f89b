// Sizes of memory that is mapped: whole pages, and places within it that begin where something has to.
#pragma once

#include <cstddef>

namespace lockstep::base {

inline constexpr std::size_t page_bytes = 4096;

/// The least multiple of `to` that is not less.
constexpr std::size_t round_up(std::size_t bytes, std::size_t to = page_bytes) {
  return (bytes + to - 1) / to * to;
}

}  // namespace lockstep::base
