#include "lockstep/launch/stop_orders.h"

#include <gtest/gtest.h>

#include <csignal>

namespace lockstep::launch {
namespace {

constexpr Deadline::Clock::time_point start{std::chrono::hours(1)};

TEST(StopOrders, TheFirstSignalThatEndsAJobIsKept) {
  StopOrders orders;
  for (const int other : {SIGUSR1, SIGUSR2, SIGTSTP, SIGCONT}) EXPECT_FALSE(orders.take(other, start));
  EXPECT_EQ(orders.first(), 0);
  for (const int stop : {SIGHUP, SIGTERM, SIGINT, SIGQUIT}) EXPECT_TRUE(orders.take(stop, start));
  EXPECT_EQ(orders.first(), SIGHUP);
}

TEST(StopOrders, InterruptsFarApartAreAHurry) {
  StopOrders orders;
  orders.take(SIGINT, start);
  orders.take(SIGINT, start + StopOrders::one_press);
  EXPECT_FALSE(orders.hurried());
  orders.take(SIGTERM, start + std::chrono::seconds(1));
  EXPECT_FALSE(orders.hurried());
  orders.take(SIGINT, start + std::chrono::seconds(1));
  EXPECT_TRUE(orders.hurried());
}

}  // namespace
}  // namespace lockstep::launch
