#include "lockstep/kernel/copy.h"

#include <gtest/gtest.h>

#include <vector>

namespace lockstep::kernel {
namespace {

constexpr std::byte guard{0xa5};

/// Bytes between guards, at any alignment.
class Buffer {
 public:
  Buffer(std::size_t bytes, std::size_t start, unsigned seed)
      : memory_(start + bytes + 64, guard), start_(start) {
    for (std::size_t i = 0; i < bytes; ++i) memory_[start + i] = static_cast<std::byte>(seed + 7 * i);
  }
  std::byte* data() { return memory_.data() + start_; }
  const std::vector<std::byte>& all() const { return memory_; }

 private:
  std::vector<std::byte> memory_;
  std::size_t start_;
};

TEST(CopyBoth, CopiesAllOfBothAndNothingElse) {
  const std::size_t sizes[] = {0, 1, 63, 255, 256, 257, 2047, 2048, 2304, 4095, 10'000};
  for (const std::size_t one : sizes) {
    for (const std::size_t other : sizes) {
      Buffer from(one, one % 5, 1);
      Buffer other_from(other, 3, 2);
      Buffer to(one, 0, 0);
      Buffer other_to(other, other % 7, 0);
      copy_both({to.data(), from.data(), one}, {other_to.data(), other_from.data(), other});
      EXPECT_EQ(to.all(), Buffer(one, 0, 1).all()) << one << " " << other;
      EXPECT_EQ(other_to.all(), Buffer(other, other % 7, 2).all()) << one << " " << other;
    }
  }
}

TEST(CopyBoth, IsForCopiesThatDoNotMeet) {
  std::vector<std::byte> memory(100);
  std::byte* const m = memory.data();
  EXPECT_TRUE(are_independent({m, m + 10, 10}, {m + 20, m + 10, 10})) << "they may read the same";
  EXPECT_TRUE(are_independent({m, m + 10, 10}, {m + 20, m + 30, 10}));
  EXPECT_FALSE(are_independent({m, m + 10, 10}, {m + 9, m + 30, 10})) << "one writes where the other does";
  EXPECT_FALSE(are_independent({m, m + 10, 10}, {m + 30, m + 9, 10})) << "the other reads what one writes";
  EXPECT_FALSE(are_independent({m, m + 10, 10}, {m + 19, m + 30, 10})) << "one reads what the other writes";
}

TEST(CopyPastCaches, CopiesAllAndNothingElse) {
  for (const std::size_t bytes : {0, 1, 63, 64, 65, 2048, 4095, 10'000}) {
    for (const std::size_t start : {0, 1, 33, 63}) {
      Buffer from(bytes, 5, 1);
      Buffer to(bytes, start, 0);
      copy_past_caches(to.data(), from.data(), bytes);
      EXPECT_EQ(to.all(), Buffer(bytes, start, 1).all()) << bytes << " at " << start;
    }
  }
}

/// How many of `copies` go past the caches, where plain ones take `ns_per_kib`.
int past_caches(CrossingCopies& crossing, int copies, std::uint64_t ns_per_kib) {
  constexpr std::size_t bytes = 64 * 1024;
  int past = 0;
  for (int i = 0; i < copies; ++i) {
    if (crossing.next_goes_past_caches(bytes)) {
      ++past;
    } else {
      crossing.plain_took(bytes, ns_per_kib * bytes / 1024);
    }
  }
  return past;
}

TEST(CrossingCopies, GoPastTheCachesWherePlainOnesAreSlow) {
  CrossingCopies crossing(true);
  EXPECT_EQ(past_caches(crossing, 1000, 60), 0);
  EXPECT_GT(past_caches(crossing, 1000, 300), 950)
      << "two plain ones at first, and one of 64 to see whether it still holds";
  EXPECT_TRUE(crossing.go_past_caches());
  EXPECT_LT(past_caches(crossing, 1000, 60), 64) << "one that was quick is enough to go back";
  EXPECT_FALSE(crossing.go_past_caches());
}

TEST(CrossingCopies, AreNotMisledByOneThatWasInterrupted) {
  CrossingCopies crossing(true);
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(past_caches(crossing, 1, 5000), 0);
    EXPECT_EQ(past_caches(crossing, 1, 60), 0);
  }
}

TEST(CrossingCopies, ShortOnesDoAsTheLongOnesAndTellNothing) {
  CrossingCopies crossing(true);
  EXPECT_FALSE(crossing.next_goes_past_caches(4096));
  (void)past_caches(crossing, 3, 300);
  for (int i = 0; i < 1000; ++i) EXPECT_TRUE(crossing.next_goes_past_caches(4096));
}

TEST(CrossingCopies, CopyAllAndNothingElseInEitherWay) {
  CrossingCopies crossing(true);
  for (const bool past : {false, true}) {
    if (past) (void)past_caches(crossing, 3, 300);
    for (const std::size_t bytes : {0, 1, 2048, 5000, 16'376, 70'000}) {
      Buffer from(bytes, 5, 1);
      Buffer to(bytes, 33, 0);
      crossing.copy(to.data(), from.data(), bytes);
      EXPECT_EQ(to.all(), Buffer(bytes, 33, 1).all()) << bytes;
    }
  }
}

TEST(CrossingCopies, ArePlainWhereNothingElseIsQuicker) {
  CrossingCopies crossing(false);
  EXPECT_EQ(past_caches(crossing, 1000, 300), 0);
}

}  // namespace
}  // namespace lockstep::kernel
