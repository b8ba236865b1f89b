#include "lockstep/base/byte_codec.h"

#include <gtest/gtest.h>

namespace lockstep::base {
namespace {

enum class Kind : std::uint16_t { late = 0x0102 };

TEST(ByteCodec, WritesTheLeastSignificantByteFirst) {
  std::string out;
  append_number(out, std::uint8_t{0xab});
  append_number(out, std::int32_t{-2});
  append_number(out, Kind::late);
  append_number(out, 1.0F);
  append_with_length(out, "ab");
  append_text(out, "");
  EXPECT_EQ(out, std::string("\xab"
                             "\xfe\xff\xff\xff"
                             "\x02\x01"
                             "\x00\x00\x80\x3f"
                             "\x02\x00\x00\x00"
                             "ab",
                             17));
}

TEST(ByteCodec, WritesTheSameIntoBothKindsOfBuffer) {
  std::string text;
  std::vector<std::byte> bytes;
  append_number(text, std::uint64_t{0x0123456789abcdef});
  append_number(bytes, std::uint64_t{0x0123456789abcdef});
  append_with_length(text, "name");
  append_with_length(bytes, "name");
  EXPECT_EQ(text_of(bytes), text);
}

TEST(ByteReader, TakesWhatWasWrittenAndKnowsWhereItIs) {
  std::vector<std::byte> bytes;
  append_number(bytes, std::uint8_t{1});
  append_number(bytes, -0.5);  // at no multiple of its size
  append_text(bytes, "rest");
  ByteReader in(bytes);
  EXPECT_EQ(in.number<std::uint8_t>(), 1);
  EXPECT_EQ(in.number<double>(), -0.5);
  EXPECT_EQ(in.at(), 9U);
  EXPECT_EQ(text_of(in.left()), "rest");
  EXPECT_EQ(text_of(in.take(4).value()), "rest");
  EXPECT_TRUE(in.at_end());
}

TEST(ByteReader, TakesNothingWhereNotAllIsThere) {
  ByteReader in("abc");
  EXPECT_EQ(in.number<std::uint32_t>(), std::nullopt);
  EXPECT_FALSE(in.take(SIZE_MAX).has_value());
  EXPECT_EQ(in.at(), 0U);
  EXPECT_TRUE(in.take(3).has_value());
  EXPECT_FALSE(in.take(1).has_value());
  EXPECT_TRUE(in.take(0).has_value());
}

TEST(ByteCodec, ReadsNumbersThatBeginWithTheMostSignificantByte) {
  std::vector<std::byte> bytes;
  append_text(bytes, std::string_view("-\x01\x02\x03\x04", 5));
  EXPECT_EQ(big_endian_at<std::uint32_t>(bytes, 1), 0x01020304U);
  EXPECT_EQ(number_at<std::uint32_t>(bytes, 1), 0x04030201U);
}

}  // namespace
}  // namespace lockstep::base
