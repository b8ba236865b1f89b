#include "lockstep/transport/ring/byte_ring.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

constexpr std::size_t line_bytes = 64;
constexpr std::size_t payload_of_a_line = line_bytes - 8;

// Zeroed memory for a ring of so many lines, with a stretch behind it that must stay untouched.
struct Memory {
  explicit Memory(std::size_t capacity) : lines(1 + capacity + 2), size((1 + capacity) * line_bytes) {}
  struct alignas(line_bytes) Line {
    std::byte bytes[line_bytes]{};
  };
  std::byte* data() { return lines.front().bytes; }
  ByteRing ring() { return {data(), size}; }
  bool is_intact() {
    const std::byte* end = lines.back().bytes + line_bytes;
    return std::all_of(data() + size, const_cast<std::byte*>(end),
                       [](std::byte b) { return b == std::byte{}; });
  }

  std::vector<Line> lines;
  std::size_t size;
};

std::vector<std::byte> counting(std::size_t count, std::size_t from = 1) {
  std::vector<std::byte> bytes(count);
  for (std::size_t i = 0; i < count; ++i) bytes[i] = static_cast<std::byte>(from + i);
  return bytes;
}

TEST(ByteRing, WrapsAroundAtEveryLineWithEveryLength) {
  constexpr std::size_t capacity = 5;
  for (std::size_t offset = 0; offset <= 2 * capacity; ++offset) {
    for (std::size_t length = 0; length <= (capacity - 2) * payload_of_a_line; ++length) {
      Memory memory(capacity);
      ByteRing writer = memory.ring();
      ByteRing reader = memory.ring();
      std::byte one{};
      for (std::size_t line = 0; line < offset; ++line) {
        ASSERT_EQ(writer.write(std::span(&one, 1)), 1U);
        ASSERT_EQ(reader.read(std::span(&one, 1)), 1U);
      }
      const auto sent = counting(length);
      std::vector<std::byte> received(length + 5);
      ASSERT_EQ(writer.write(sent), length);
      ASSERT_EQ(reader.read(received), length) << "no more than was written";
      ASSERT_TRUE(std::equal(sent.begin(), sent.end(), received.begin())) << "offset " << offset;
      ASSERT_EQ(reader.read(received), 0U);
      ASSERT_TRUE(memory.is_intact());
    }
  }
}

TEST(ByteRing, TakesWhatFitsAndNoMore) {
  Memory memory(4);  // one of them holds the zero
  ByteRing writer = memory.ring();
  ByteRing reader = memory.ring();
  constexpr std::size_t fits = 3 * line_bytes - 8;
  std::vector<std::byte> room(4);
  EXPECT_EQ(reader.read(room), 0U) << "empty";
  EXPECT_EQ(writer.write(counting(fits + 100)), fits);
  EXPECT_EQ(writer.write(counting(1)), 0U) << "full";
  EXPECT_EQ(reader.read(room), 4U);
  EXPECT_EQ(room, counting(4));
  EXPECT_EQ(writer.write(counting(1)), 0U) << "a record is free when all of it was read";
  std::vector<std::byte> rest(fits);
  EXPECT_EQ(reader.read(rest), fits - 4);
  rest.resize(fits - 4);
  EXPECT_EQ(rest, counting(fits - 4, 5));
  EXPECT_EQ(writer.write(counting(3)), 3U);
  EXPECT_EQ(reader.read(std::span(rest).first(0)), 0U);
  EXPECT_EQ(writer.write(std::span(rest).first(0)), 0U);
  EXPECT_EQ(reader.read(room), 3U);
}

TEST(ByteRing, TwoSmallBuffersAreOneLine) {
  Memory memory(3);
  ByteRing writer = memory.ring();
  ByteRing reader = memory.ring();
  EXPECT_EQ(writer.write(counting(48), counting(8, 49)), payload_of_a_line);
  EXPECT_EQ(writer.write(counting(1)), 1U) << "there is another line";
  std::vector<std::byte> room(payload_of_a_line);
  EXPECT_EQ(reader.read(std::span(room).first(48)), 48U);
  EXPECT_EQ(reader.read(std::span(room).subspan(48)), 8U);
  EXPECT_EQ(room, counting(payload_of_a_line));
}

TEST(ByteRing, WhatIsNoLengthIsRefused) {
  for (const std::uint64_t length : {std::uint64_t{3} * line_bytes, ~std::uint64_t{0}}) {
    Memory memory(3);
    ByteRing reader = memory.ring();
    std::memcpy(memory.lines[1].bytes, &length, sizeof(length));
    std::byte byte{};
    try {
      static_cast<void>(reader.read(std::span(&byte, 1)));
      ADD_FAILURE() << length;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::corrupt_data);
      EXPECT_EQ(error.what(), "a record of " + std::to_string(length) +
                                  " bytes stands in a ring between two ranks where it cannot: shared memory "
                                  "was overwritten");
    }
  }
}

// Old payload of ones stands everywhere where lengths will: only zeros keep it from being taken for one.
TEST(ByteRing, OldPayloadIsNeverALength) {
  constexpr std::size_t capacity = 9;
  Memory memory(capacity);
  ByteRing writer = memory.ring();
  ByteRing reader = memory.ring();
  std::minstd_rand random(3);
  std::vector<std::uint64_t> ones(capacity * line_bytes / sizeof(std::uint64_t), 1);
  for (int round = 0; round < 2000; ++round) {
    const auto bytes = std::as_bytes(std::span(ones)).first(1 + random() % ((capacity - 2) * line_bytes));
    std::vector<std::byte> room(bytes.size());
    std::size_t written = 0, read = 0;
    while (read < bytes.size()) {
      written += writer.write(bytes.subspan(written));
      read += reader.read(std::span(room).subspan(read));
      ASSERT_EQ(read, written);
    }
    ASSERT_TRUE(std::equal(room.begin(), room.end(), bytes.begin()));
    std::byte more{};
    ASSERT_EQ(reader.read(std::span(&more, 1)), 0U);
  }
}

TEST(ByteRing, CarriesBytesBetweenThreadsInOrder) {
  for (const std::size_t capacity : {2U, 3U, 64U, 700U}) {
    Memory memory(capacity);
    const std::size_t most = 2 * capacity * line_bytes;
    const std::size_t total = 200 * std::min<std::size_t>(most, 5000);
    const auto at = [](std::size_t position) {
      return static_cast<std::byte>(position * 31 + (position >> 8));
    };
    std::thread writer([&, ring = memory.ring()]() mutable {
      std::minstd_rand random(1);
      for (std::size_t position = 0; position < total;) {
        std::vector<std::byte> piece(std::min<std::size_t>(1 + random() % most, total - position));
        for (std::size_t i = 0; i < piece.size(); ++i) piece[i] = at(position + i);
        const auto all = std::span<const std::byte>(piece);
        const std::size_t split = random() % (piece.size() + 1);
        const std::size_t count = ring.write(all.first(split), all.subspan(split));
        position += count;
        if (count == 0) std::this_thread::yield();
      }
    });
    ByteRing ring = memory.ring();
    std::minstd_rand random(2);
    std::size_t wrong = 0;
    for (std::size_t position = 0; position < total;) {
      std::vector<std::byte> piece(1 + random() % most);
      const std::size_t count = ring.read(piece);
      for (std::size_t i = 0; i < count; ++i) wrong += piece[i] == at(position + i) ? 0 : 1;
      position += count;
      if (count == 0) std::this_thread::yield();
    }
    writer.join();
    EXPECT_EQ(wrong, 0U) << "capacity " << capacity;
    std::byte byte{};
    EXPECT_EQ(ring.read(std::span(&byte, 1)), 0U);
    EXPECT_TRUE(memory.is_intact());
  }
}

TEST(ByteRing, CountsWhatTheReaderSaysThatItTook) {
  Memory memory(4);
  ByteRing writer = memory.ring(), reader = memory.ring();
  EXPECT_EQ(writer.taken(), 0U);
  reader.note_taken();
  reader.note_taken();
  EXPECT_EQ(writer.taken(), 2U);
}

}  // namespace
}  // namespace lockstep
