#include "lockstep/trace/clock.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>
#include <vector>

namespace lockstep::trace {
namespace {

std::uint64_t system_ns() {
  return static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch() /
                                    std::chrono::nanoseconds(1));
}

TEST(Clock, IsTheSystemsInEveryThread) {
  const auto check = [] {
    for (int round = 0; round < 300; ++round) {
      const std::uint64_t before = system_ns();
      const std::uint64_t now = now_ns();
      const std::uint64_t after = system_ns();
      // A reading between anchors may be off by a little; a wrong rate or anchor is off by much more.
      EXPECT_GE(now + 20'000, before);
      EXPECT_LE(now, after + 20'000);
      // Longer than a reading relies on one anchor.
      if (round % 30 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(3));
    }
  };
  std::vector<std::thread> threads;
  for (int count = 0; count < 3; ++count) threads.emplace_back(check);
  for (auto& thread : threads) thread.join();
}

TEST(Clock, NeverGoesBack) {
  std::uint64_t latest = now_ns();
  for (int reading = 0; reading < 2'000'000; ++reading) {
    const std::uint64_t now = now_ns();
    ASSERT_GE(now, latest);
    latest = now;
  }
}

}  // namespace
}  // namespace lockstep::trace
