#include "lockstep/base/newcomers.h"

#include <gtest/gtest.h>

#include "lockstep/base/waits_test.h"

namespace lockstep {
namespace {

TEST(Newcomers, OfOneSourceHaveHalfOfThePlaces) {
  Newcomers all({.most = 6});
  for (int fd = 0; fd < 3; ++fd) EXPECT_EQ(all.add(fd, "flood"), std::nullopt);
  for (int fd = 3; fd < 1000; ++fd) EXPECT_EQ(all.add(fd, "flood"), fd - 3) << "its own oldest goes";
  EXPECT_EQ(all.count(), 3U);
  EXPECT_EQ(all.add(1000, "a rank"), std::nullopt);
  EXPECT_TRUE(all.remove(1000));
  EXPECT_FALSE(all.remove(1000));
}

TEST(Newcomers, WhereAllPlacesAreTakenMakeRoomForThoseWhoHaveFewer) {
  Newcomers all({.most = 6});
  for (int fd = 0; fd < 3; ++fd) (void)all.add(fd, "b, first");
  for (int fd = 3; fd < 5; ++fd) (void)all.add(fd, "c, second");
  (void)all.add(5, "a rank");
  EXPECT_EQ(all.add(6, "d, another rank"), 0);
  EXPECT_EQ(all.count(), 6U);
  EXPECT_TRUE(all.remove(5)) << "whose source has one place is not touched";
}

TEST(Newcomers, HaveSoMuchTime) {
  Newcomers patient({.patience = std::chrono::hours(1)});
  EXPECT_TRUE(patient.next_deadline().is_never());
  (void)patient.add(7, "x");
  EXPECT_EQ(patient.take_late(), std::nullopt);
  EXPECT_FALSE(patient.next_deadline().is_never());
  Newcomers hasty({.patience = std::chrono::nanoseconds(1)});
  (void)hasty.add(7, "x");
  std::optional<int> late;
  EXPECT_TRUE(test::eventually([&] { return (late = hasty.take_late()).has_value(); }));
  EXPECT_EQ(late, 7);
  EXPECT_EQ(hasty.count(), 0U);
}

}  // namespace
}  // namespace lockstep
