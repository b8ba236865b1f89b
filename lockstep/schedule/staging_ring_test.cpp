#include "lockstep/schedule/staging_ring.h"

#include <gtest/gtest.h>

#include <random>

namespace lockstep::schedule {
namespace {

constexpr std::size_t memory_bytes = 8192;

TEST(StagingRing, PiecesThatFollowEachOtherNeverMeet) {
  StagingRing ring(memory_bytes);
  std::mt19937 random(7);
  std::size_t last_begin = memory_bytes;
  std::size_t last_end = memory_bytes;
  for (int call = 0; call < 10'000; ++call) {
    const std::size_t bytes = random() % (ring.piece_bytes() + 1);
    const std::size_t pieces = random() % 12;
    const StagingWindows windows = ring.take(pieces, bytes);
    for (std::size_t piece = 0; piece < pieces; ++piece) {
      const std::size_t begin = windows.begin_of(piece);
      ASSERT_LE(begin + bytes, memory_bytes);
      ASSERT_EQ(begin % 64, 0U) << "two ranks never write to one line";
      ASSERT_TRUE(begin >= last_end || begin + bytes <= last_begin)
          << bytes << " at " << begin << " after " << last_begin << " to " << last_end;
      last_begin = begin;
      last_end = begin + bytes;
    }
  }
}

TEST(StagingRing, IsWrittenAgainOnlyAfterTheRestOfIt) {
  StagingRing ring(memory_bytes);
  const std::size_t bytes = 128;
  const std::size_t first = ring.take(1, bytes).begin_of(0);
  std::size_t calls = 1;
  while (ring.take(1, bytes).begin_of(0) != first) ++calls;
  EXPECT_EQ(calls, 7 * ring.piece_bytes() / bytes);
}

TEST(StagingRing, IsWhole64ByteLinesOfWhatThereIs) {
  EXPECT_EQ(StagingRing(4096).piece_bytes(), 512U);
  EXPECT_EQ(StagingRing(4100 + 8 * 60).piece_bytes(), 512U);
  EXPECT_EQ(StagingRing(0).piece_bytes(), 0U);
}

}  // namespace
}  // namespace lockstep::schedule
