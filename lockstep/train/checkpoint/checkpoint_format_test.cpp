#include "lockstep/train/checkpoint/checkpoint_format.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

using testing::HasSubstr;

CheckpointHeader sample() {
  CheckpointHeader header{.epoch = 7, .metadata = {{"note", "a \0 b"}, {"", ""}}};
  header.entries.push_back(
      {.kind = EntryKind::parameter, .type = 5, .name = "fc.weight", .shape = {2, 3}, .bytes = 24});
  header.entries.push_back({.kind = EntryKind::buffer, .type = 2, .name = "count", .shape = {}, .bytes = 8});
  header.entries.push_back(
      {.kind = EntryKind::buffer, .type = 5, .name = "none", .shape = {0, 4}, .bytes = 0});
  header.entries.push_back(
      {.kind = EntryKind::optimizer, .type = 0, .name = "SGD", .shape = {100}, .bytes = 100});
  header.entries[0].checksum.fill(std::byte{0x5a});
  return header;
}

CheckpointHeader read(const std::vector<std::byte>& bytes, std::uint64_t file_bytes) {
  const auto start = std::span(bytes).first(std::min(bytes.size(), checkpoint_fixed_bytes));
  const std::size_t length = header_bytes(start, file_bytes, "model.ckpt");
  if (length > bytes.size()) throw Error(ErrorCode::corrupt_data, "longer than what the test has of it");
  return decode(std::span(bytes).first(length), file_bytes, "model.ckpt");
}

std::string refusal(const std::vector<std::byte>& bytes, std::uint64_t file_bytes) {
  try {
    (void)read(bytes, file_bytes);
  } catch (const Error& error) {
    return std::string(to_string(error.code())) + ": " + error.what();
  }
  return "accepted";
}

TEST(CheckpointFormat, DecodesWhatItEncodes) {
  auto header = sample();
  const auto bytes = encode(header);
  const auto decoded = read(bytes, header.file_bytes);
  EXPECT_EQ(decoded.epoch, 7U);
  EXPECT_EQ(decoded.metadata, header.metadata);
  ASSERT_EQ(decoded.entries.size(), 4U);
  EXPECT_EQ(decoded.entries[0].name, "fc.weight");
  EXPECT_EQ(decoded.entries[0].shape, (std::vector<std::uint64_t>{2, 3}));
  EXPECT_EQ(decoded.entries[0].checksum, header.entries[0].checksum);
  EXPECT_EQ(decoded.entries[3].kind, EntryKind::optimizer);
  for (const auto& entry : decoded.entries) EXPECT_EQ(entry.offset % checkpoint_alignment, 0U);
  EXPECT_EQ(decoded.file_bytes, decoded.entries[3].offset + 100);
}

TEST(CheckpointFormat, IsWhatTheDocumentSays) {
  CheckpointHeader header{.epoch = 3};
  header.entries.push_back({.kind = EntryKind::buffer, .type = 6, .name = "x", .shape = {2}, .bytes = 16});
  const auto bytes = encode(header);
  ASSERT_EQ(bytes.size(), 80U + 8 + 1 + 8 + 8 + 8 + 32);
  const auto number = [&](std::size_t at, std::size_t size) {
    std::uint64_t value = 0;
    std::memcpy(&value, bytes.data() + at, size);
    return value;
  };
  EXPECT_EQ(std::memcmp(bytes.data(), "\x89LSCK\r\n\x1a", 8), 0);
  EXPECT_EQ(number(8, 4), 1U);             // version
  EXPECT_EQ(number(12, 4), 1U);            // entries
  EXPECT_EQ(number(16, 8), bytes.size());  // header
  EXPECT_EQ(number(24, 8), 192U + 16);     // file
  EXPECT_EQ(number(32, 8), 3U);            // epoch
  EXPECT_EQ(number(40, 4), 0U);            // metadata
  EXPECT_EQ(number(80, 1), 1U);            // buffer
  EXPECT_EQ(number(81, 1), 6U);            // f64
  EXPECT_EQ(number(82, 2), 1U);            // dimensions
  EXPECT_EQ(number(84, 4), 1U);            // the name's length
  EXPECT_EQ(number(88, 1), std::uint64_t{'x'});
  EXPECT_EQ(number(89, 8), 2U);    // size
  EXPECT_EQ(number(97, 8), 192U);  // offset
  EXPECT_EQ(number(105, 8), 16U);  // bytes
}

TEST(CheckpointFormat, RefusesAHeaderWithAnyByteChanged) {
  auto header = sample();
  const auto bytes = encode(header);
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    for (const unsigned flip : {0x01U, 0x80U, 0xffU}) {
      auto damaged = bytes;
      damaged[i] ^= static_cast<std::byte>(flip);
      EXPECT_NE(refusal(damaged, header.file_bytes), "accepted") << "byte " << i;
    }
  }
}

TEST(CheckpointFormat, RefusesAHeaderThatIsCutAnywhere) {
  auto header = sample();
  const auto bytes = encode(header);
  for (std::size_t length = 0; length < bytes.size(); ++length) {
    const std::vector<std::byte> cut(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(length));
    EXPECT_THAT(refusal(cut, length), HasSubstr("corrupt_data: checkpoint model.ckpt: at byte")) << length;
  }
}

TEST(CheckpointFormat, SaysWhatAFileIsThatIsNone) {
  EXPECT_THAT(refusal({}, 0),
              HasSubstr("at byte 0 expected the first bytes of a Lockstep checkpoint, found an empty file"));
  EXPECT_THAT(refusal(std::vector<std::byte>(500), 500), HasSubstr("found other ones"));
}

TEST(CheckpointFormat, SaysThatALaterVersionIsNotDamage) {
  auto header = sample();
  auto bytes = encode(header);
  bytes[8] = std::byte{2};
  EXPECT_THAT(refusal(bytes, header.file_bytes),
              HasSubstr("unsupported: model.ckpt is a checkpoint of format version 2"));
}

/// A header that is what its checksum says, but lies.
std::string refusal_of_lie(const std::function<void(CheckpointEntry&)>& lie) {
  auto header = sample();
  (void)encode(header);
  const auto file_bytes = header.file_bytes;
  auto lying = header;
  lie(lying.entries[0]);
  auto bytes = encode_as_it_is(lying);
  return refusal(bytes, file_bytes);
}

TEST(CheckpointFormat, RefusesEntriesThatLieAboutTheirPlace) {
  EXPECT_THAT(refusal_of_lie([](auto& entry) { entry.offset += 64; }),
              HasSubstr("expected parameter fc.weight at byte"));
  EXPECT_THAT(refusal_of_lie([](auto& entry) { entry.offset = ~std::uint64_t{0} - 3; }),
              HasSubstr("expected parameter fc.weight at byte"));
  EXPECT_THAT(refusal_of_lie([](auto& entry) { entry.bytes = 23; }),
              HasSubstr("as long as its type and shape say"));
  EXPECT_THAT(refusal_of_lie([](auto& entry) {
                entry.shape = {~std::uint64_t{0}, 3};
              }),
              HasSubstr("as long as its type and shape say"));
  EXPECT_THAT(refusal_of_lie([](auto& entry) { entry.type = 12; }),
              HasSubstr("as long as its type and shape say"));
  EXPECT_THAT(refusal_of_lie([](auto& entry) {
                entry.shape = {1U << 20, 1U << 20};
                entry.bytes = std::uint64_t{1} << 42;
              }),
              HasSubstr("bytes at byte"));
}

TEST(CheckpointFormat, RefusesToWriteWhatItCouldNotRead) {
  CheckpointHeader header = sample();
  header.metadata["large"] = std::string((1 << 20) + 1, 'x');
  EXPECT_THROW((void)encode(header), Error);
  header = sample();
  header.entries[0].shape.assign(65, 1);
  EXPECT_THROW((void)encode(header), Error);
}

TEST(Sha256Sum, IsTheStandardOne) {
  Sha256Sum sum;
  sum.update(std::as_bytes(std::span("abc", 1)));
  sum.update(std::as_bytes(std::span("bc", 2)));
  const auto digest = sum.digest();
  EXPECT_EQ(digest[0], std::byte{0xba});
  EXPECT_EQ(digest[1], std::byte{0x78});
  EXPECT_EQ(digest[31], std::byte{0xad});
}

}  // namespace
}  // namespace lockstep
