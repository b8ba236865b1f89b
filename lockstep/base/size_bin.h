// Message sizes in classes, for profiles: none, up to 4 bytes, then doubling (5 to 8, 9 to 16, ...).
#pragma once

#include <bit>
#include <cstdint>

namespace lockstep::base {

inline constexpr int size_bin_count = 64;

constexpr int size_bin(std::uint64_t bytes) {
  if (bytes == 0) return 0;
  return bytes <= 4 ? 1 : static_cast<int>(std::bit_width(bytes - 1)) - 1;
}

/// The largest size of a class.
constexpr std::uint64_t most_bytes_of_bin(int bin) {
  if (bin == 0) return 0;
  return bin >= size_bin_count - 1 ? ~std::uint64_t{0} : std::uint64_t{1} << static_cast<unsigned>(bin + 1);
}

static_assert(size_bin(4) == 1 && size_bin(5) == 2 && size_bin(8) == 2 && size_bin(9) == 3);
static_assert(size_bin(~std::uint64_t{0}) == size_bin_count - 1 && most_bytes_of_bin(2) == 8);

}  // namespace lockstep::base
