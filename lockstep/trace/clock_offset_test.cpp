#include "lockstep/trace/clock_offset.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace lockstep::trace {
namespace {

constexpr std::uint64_t second = 1'000'000'000;

/// A host whose clock is ahead by five minutes, and runs `drift` too fast.
struct OtherHost {
  double drift = 0;
  std::uint64_t clock(std::uint64_t ours) const {
    return ours + 300 * second + static_cast<std::uint64_t>(static_cast<double>(ours) * drift);
  }
};

/// An exchange every second whose ways take 20 to 500 microseconds each, some of them much longer.
ClockOffset ask(const OtherHost& host, int seconds) {
  std::mt19937 dice(1);
  std::uniform_int_distribution<std::uint64_t> way(20'000, 500'000);
  ClockOffset offset(0);
  for (int i = 0; i < seconds; ++i) {
    const std::uint64_t asked = 1000 * second + static_cast<std::uint64_t>(i) * second;
    const std::uint64_t there = asked + way(dice) + (i % 3 == 0 ? 40'000'000 : 0);
    offset.add(asked, host.clock(there), there + way(dice));
  }
  return offset;
}

double error_at(const ClockOffset& offset, const OtherHost& host, std::uint64_t ours) {
  return std::abs(static_cast<double>(static_cast<std::int64_t>(offset.to_ours(host.clock(ours)) - ours)));
}

TEST(ClockOffset, IsWithinItsErrorUnderOffsetAndDrift) {
  for (const double drift : {0.0, 50e-6, -50e-6}) {
    const OtherHost host{drift};
    const ClockOffset offset = ask(host, 60);
    ASSERT_TRUE(offset.error_ns());
    EXPECT_LE(*offset.error_ns(), 500'000U);
    for (const std::uint64_t at : {1000U, 1010U, 1030U, 1059U})
      EXPECT_LE(error_at(offset, host, at * second), static_cast<double>(*offset.error_ns()))
          << drift << " at " << at;
  }
}

TEST(ClockOffset, OfFastExchangesIsBelowFiftyMicroseconds) {
  const OtherHost host{20e-6};
  ClockOffset offset(0);
  for (std::uint64_t i = 0; i < 20; ++i) {
    const std::uint64_t asked = (1000 + i) * second;
    offset.add(asked, host.clock(asked + 30'000), asked + 90'000);
  }
  EXPECT_LE(*offset.error_ns(), 50'000U);
  EXPECT_LE(error_at(offset, host, 1010 * second), 50'000.0);
}

TEST(ClockOffset, OfAShortRunIsThatOfTheFastestExchange) {
  const OtherHost host;
  ClockOffset offset(0);
  offset.add(second, host.clock(second + 900'000), second + 1'000'000);
  offset.add(2'000'000'00, host.clock(2'000'000'00 + 10'000), 2'000'000'00 + 20'000);
  EXPECT_LE(error_at(offset, host, second), 1.0);
}

TEST(ClockOffset, WithoutExchangesIsWhatWasSupposed) {
  const ClockOffset offset(-5);
  EXPECT_EQ(offset.to_ours(100), 105U);
  EXPECT_FALSE(offset.error_ns());
}

}  // namespace
}  // namespace lockstep::trace
