// FNV-1a: short names for long texts, the same on every machine. Not for anything that an adversary chooses.
#pragma once

#include <cstdint>
#include <string_view>

namespace lockstep {

constexpr std::uint32_t fnv1a_32(std::string_view text) {
  std::uint32_t hash = 2166136261U;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 16777619U;
  return hash;
}

constexpr std::uint64_t fnv1a_64(std::string_view text) {
  std::uint64_t hash = 14695981039346656037ULL;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211ULL;
  return hash;
}

}  // namespace lockstep
