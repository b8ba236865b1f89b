#include "lockstep/base/custom_reduction.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "lockstep/base/hash.h"

namespace lockstep {
namespace {

// So much is combined at a time, in memory that stays in the nearest cache.
constexpr std::size_t block_bytes = 8192;

}  // namespace

CustomReduction::CustomReduction(std::string name, std::size_t element_bytes, Combine combine)
    : name_(std::move(name)), element_bytes_(element_bytes), combine_(std::move(combine)) {}

std::uint32_t CustomReduction::fingerprint() const {
  return fnv1a_32(fmt::format("{}/{}", name_, element_bytes_));
}

void CustomReduction::reduce(std::size_t elements, std::span<const std::byte* const> sources,
                             std::span<std::byte* const> destinations) const {
  // A destination may be a source that is still to be read, so sums grow elsewhere.
  const std::size_t most = std::max<std::size_t>(1, block_bytes / element_bytes_);
  std::vector<std::byte> block(std::min(most, elements) * element_bytes_);
  for (std::size_t begin = 0; begin < elements; begin += most) {
    const std::size_t count = std::min(most, elements - begin);
    const std::size_t offset = begin * element_bytes_;
    std::memcpy(block.data(), sources[0] + offset, count * element_bytes_);
    for (const std::byte* source : sources.subspan(1)) combine_(block.data(), source + offset, count);
    for (std::byte* destination : destinations) {
      std::memcpy(destination + offset, block.data(), count * element_bytes_);
    }
  }
}

}  // namespace lockstep
