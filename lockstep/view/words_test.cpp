#include "lockstep/view/words.h"

#include <gtest/gtest.h>

namespace lockstep::view {
namespace {

TEST(Words, DurationsAreForPeople) {
  EXPECT_EQ(duration(0), "0.0 ms");
  EXPECT_EQ(duration(420'000), "0.4 ms");
  EXPECT_EQ(duration(849'600'000), "850 ms");
  EXPECT_EQ(duration(999'700'000), "1.0 s");
  EXPECT_EQ(duration(59'960'000'000), "1 min 0 s");
  EXPECT_EQ(duration(200'000'000'000), "3 min 20 s");
  EXPECT_EQ(duration(3'900'000'000'000), "1 h 5 min");
}

TEST(Words, RanksAreNamedInOrder) {
  EXPECT_EQ(names({3}), "rank 3");
  EXPECT_EQ(names({4, 0, 2, 3}), "ranks 0, 2-4");
}

}  // namespace
}  // namespace lockstep::view
