#include "lockstep/data/crc32.h"

#include <gtest/gtest.h>

#include <string_view>

namespace lockstep {
namespace {

std::uint32_t sum_of(std::string_view text, std::uint32_t before = 0) {
  return crc32(std::as_bytes(std::span(text)), before);
}

TEST(Crc32, IsTheOneOfZip) {
  EXPECT_EQ(sum_of(""), 0U);
  EXPECT_EQ(sum_of("a"), 0xe8b7be43U);
  EXPECT_EQ(sum_of("123456789"), 0xcbf43926U);  // the catalogue's check value
  EXPECT_EQ(sum_of("The quick brown fox jumps over the lazy dog"), 0x414fa339U);
}

TEST(Crc32, OfPartsIsThatOfTheWhole) {
  const std::string_view text = "The quick brown fox jumps over the lazy dog";
  for (std::size_t end = 0; end <= text.size(); ++end)
    EXPECT_EQ(sum_of(text.substr(end), sum_of(text.substr(0, end))), 0x414fa339U) << end;
}

}  // namespace
}  // namespace lockstep
