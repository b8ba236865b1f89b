#include "lockstep/base/crc32c.h"

#include <gtest/gtest.h>

#include <array>
#include <string>

namespace lockstep {
namespace {

std::span<const std::byte> bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }

TEST(Crc32c, IsThatOfRfc3720) {
  EXPECT_EQ(crc32c(bytes_of("123456789")), 0xe3069283);
  EXPECT_EQ(crc32c(bytes_of(std::string(32, '\0'))), 0x8a9136aa);
  EXPECT_EQ(crc32c(bytes_of(std::string(32, '\xff'))), 0x62a8ab43);
  EXPECT_EQ(crc32c({}), 0U);
}

TEST(Crc32c, IsMaskedAsTensorFlowDoes) { EXPECT_EQ(masked_crc32c(bytes_of("123456789")), 0xc78ab0e5); }

TEST(Crc32c, ChangesWithEveryBit) {
  std::array<std::byte, 24> bytes{};
  const auto before = crc32c(bytes);
  for (std::byte& byte : bytes) {
    for (int bit = 0; bit < 8; ++bit) {
      byte ^= std::byte{1} << bit;
      EXPECT_NE(crc32c(bytes), before);
      byte ^= std::byte{1} << bit;
    }
  }
}

}  // namespace
}  // namespace lockstep
