// Numbers as the files of this folder have them: the least significant byte first, at any address.
#pragma once

#include <bit>
#include <concepts>
#include <cstddef>
#include <cstring>
#include <vector>

namespace lockstep {

static_assert(std::endian::native == std::endian::little, "numbers are moved as they lie in memory");

/// REQUIRES: sizeof(T) bytes at `bytes`.
template <std::integral T>
T from_little_endian(const std::byte* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof value);
  return value;
}

template <std::integral T>
void append_little_endian(std::vector<std::byte>& bytes, T value) {
  const std::size_t end = bytes.size();
  bytes.resize(end + sizeof value);  // insert() makes GCC 12 see overflows that are not there
  std::memcpy(bytes.data() + end, &value, sizeof value);
}

}  // namespace lockstep
