#include "lockstep/transport/byte_ring.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <thread>
#include <vector>

namespace lockstep {
namespace {

constexpr std::size_t counters_bytes = 128;

// Zeroed memory for a ring of so many bytes, with a stretch behind it that must stay untouched.
struct Memory {
  explicit Memory(std::size_t capacity)
      : lines((counters_bytes + capacity) / 64 + 2), size(counters_bytes + capacity) {}
  struct alignas(64) Line {
    std::byte bytes[64]{};
  };
  std::byte* data() { return lines.front().bytes; }
  ByteRing ring() { return {data(), size}; }
  bool is_intact() {
    const std::byte* end = lines.back().bytes + 64;
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

TEST(ByteRing, WrapsAroundAtEveryOffsetWithEveryLength) {
  constexpr std::size_t capacity = 13;
  for (std::size_t offset = 0; offset <= capacity; ++offset) {
    for (std::size_t length = 0; length <= capacity; ++length) {
      Memory memory(capacity);
      ByteRing writer = memory.ring();
      ByteRing reader = memory.ring();
      std::vector<std::byte> scratch(capacity);
      const auto skipped = std::span(scratch).first(offset);
      ASSERT_EQ(writer.write(skipped), offset);
      ASSERT_EQ(reader.read(skipped), offset);
      const auto all = counting(capacity);
      const auto sent = std::span(all).first(length);
      std::vector<std::byte> received(capacity + 5);
      ASSERT_EQ(writer.write(sent), length);
      ASSERT_EQ(reader.read(received), length) << "no more than was written";
      ASSERT_TRUE(std::equal(sent.begin(), sent.end(), received.begin())) << "offset " << offset;
      ASSERT_TRUE(memory.is_intact());
    }
  }
}

TEST(ByteRing, TakesWhatFitsAndNoMore) {
  Memory memory(10);
  ByteRing writer = memory.ring();
  ByteRing reader = memory.ring();
  std::vector<std::byte> room(4);
  EXPECT_EQ(reader.read(room), 0U) << "empty";
  EXPECT_EQ(writer.write(counting(25)), 10U);
  EXPECT_EQ(writer.write(counting(1)), 0U) << "full";
  EXPECT_EQ(reader.read(room), 4U);
  EXPECT_EQ(room, counting(4));
  EXPECT_EQ(writer.write(counting(25, 11)), 4U);
  std::vector<std::byte> rest(25);
  EXPECT_EQ(reader.read(rest), 10U);
  rest.resize(10);
  EXPECT_EQ(rest, counting(10, 5));
  EXPECT_EQ(reader.read(std::span(rest).first(0)), 0U);
  EXPECT_EQ(writer.write(std::span(rest).first(0)), 0U);
}

TEST(ByteRing, CarriesBytesBetweenThreadsInOrder) {
  for (const std::size_t capacity : {1U, 7U, 64U, 4099U}) {
    Memory memory(capacity);
    const std::size_t total = 200 * std::min<std::size_t>(capacity, 1000);
    const auto at = [](std::size_t position) {
      return static_cast<std::byte>(position * 31 + (position >> 8));
    };
    std::thread writer([&, ring = memory.ring()]() mutable {
      std::minstd_rand random(1);
      for (std::size_t position = 0; position < total;) {
        std::vector<std::byte> piece(std::min<std::size_t>(1 + random() % (2 * capacity), total - position));
        for (std::size_t i = 0; i < piece.size(); ++i) piece[i] = at(position + i);
        const std::size_t count = ring.write(piece);
        position += count;
        if (count == 0) std::this_thread::yield();
      }
    });
    ByteRing ring = memory.ring();
    std::minstd_rand random(2);
    std::size_t wrong = 0;
    for (std::size_t position = 0; position < total;) {
      std::vector<std::byte> piece(1 + random() % (2 * capacity));
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

}  // namespace
}  // namespace lockstep
