#include "lockstep/base/wait.h"

#include <gtest/gtest.h>

#include <memory>
#include <thread>

#include "lockstep/base/deadline.h"
#include "lockstep/base/mapping.h"

namespace lockstep {
namespace {

using namespace std::chrono_literals;

struct Shared {
  Mapping memory = Mapping::anonymous(4096);
  Doorbell& doorbell() { return *reinterpret_cast<Doorbell*>(memory.data()); }
};

TEST(Doorbell, LosesNoRingBetweenLookAndSleep) {
  Shared shared;
  std::atomic<int> published = 0;
  constexpr int rounds = 20'000;
  std::thread publisher([&] {
    for (int round = 1; round <= rounds; ++round) {
      published.store(round, std::memory_order_seq_cst);
      shared.doorbell().ring();
      while (published.load(std::memory_order_acquire) != -round) std::this_thread::yield();
    }
  });
  const auto begin = std::chrono::steady_clock::now();
  for (int round = 1; round <= rounds; ++round) {
    while (published.load(std::memory_order_acquire) != round) {
      const auto ticket = shared.doorbell().prepare();
      if (published.load(std::memory_order_seq_cst) == round) {
        shared.doorbell().cancel();
      } else {
        shared.doorbell().sleep(ticket, 60s);  // a lost ring would make the test that slow
      }
    }
    published.store(-round, std::memory_order_release);
  }
  publisher.join();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 55s);
}

TEST(Doorbell, SleepEndsByItself) {
  Shared shared;
  shared.doorbell().sleep(shared.doorbell().prepare(), 1ms);
}

TEST(Backoff, ClimbsSpinsAndYieldsAndThenAsksForSleep) {
  Backoff backoff({.spins = 3, .yields = 2});
  for (int look = 0; look < 5; ++look) EXPECT_FALSE(backoff.step());
  EXPECT_TRUE(backoff.step());
  EXPECT_TRUE(backoff.step());
  backoff.restart();
  EXPECT_FALSE(backoff.step());
}

TEST(WaitPolicy, DoesNotSpinWithMoreRanksThanCores) {
  EXPECT_GT(WaitPolicy::for_ranks_per_core(1.0).spins, 0);
  EXPECT_EQ(WaitPolicy::for_ranks_per_core(1.5).spins, 0);
}

TEST(Deadline, NeverIsNeverAndTooLongIsNever) {
  EXPECT_FALSE(Deadline::never().expired());
  EXPECT_TRUE(Deadline::after(std::chrono::nanoseconds::max()).is_never());
  EXPECT_EQ(Deadline::never().poll_milliseconds(250ms), 250);
  EXPECT_TRUE(Deadline::never().later_by(1ns).is_never());
  EXPECT_TRUE(Deadline::after(0ns).expired());
  EXPECT_FALSE(Deadline::after(0ns).later_by(1h).expired());
  EXPECT_EQ(Deadline::after(-5s).remaining(), 0ns);
  EXPECT_EQ(Deadline::after(-5s).poll_milliseconds(250ms), 0);
}

}  // namespace
}  // namespace lockstep
