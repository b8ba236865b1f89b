#include "lockstep/data/crc32.h"

#include <array>

#include "lockstep/base/byte_codec.h"

namespace lockstep {
namespace {

using Tables = std::array<std::array<std::uint32_t, 256>, 8>;

/// tables[k][b]: what a byte b does to the sum when k bytes have come after it.
constexpr Tables make_tables() {
  Tables tables{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t rest = byte;
    for (int bit = 0; bit < 8; ++bit) rest = (rest >> 1U) ^ ((rest & 1U) != 0 ? 0xedb88320U : 0U);
    tables[0][byte] = rest;
  }
  for (std::size_t after = 1; after < tables.size(); ++after) {
    for (std::size_t byte = 0; byte < 256; ++byte) {
      const std::uint32_t rest = tables[after - 1][byte];
      tables[after][byte] = (rest >> 8U) ^ tables[0][rest & 0xffU];
    }
  }
  return tables;
}

constexpr Tables tables = make_tables();

}  // namespace

std::uint32_t crc32(std::span<const std::byte> bytes, std::uint32_t before) {
  std::uint32_t sum = ~before;
  for (; bytes.size() >= 8; bytes = bytes.subspan(8)) {
    const auto word = base::number_at<std::uint64_t>(bytes) ^ sum;
    sum = 0;
    for (std::size_t at = 0; at < 8; ++at) sum ^= tables[7 - at][(word >> (8 * at)) & 0xffU];
  }
  for (const std::byte byte : bytes)
    sum = (sum >> 8U) ^ tables[0][(sum ^ std::to_integer<std::uint32_t>(byte)) & 0xffU];
  return ~sum;
}

}  // namespace lockstep
