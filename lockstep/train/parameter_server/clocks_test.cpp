#include "lockstep/train/parameter_server/clocks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <random>
#include <string>

namespace lockstep::ps {
namespace {

Life life(int rank, int incarnation = 0) { return {.rank = rank, .incarnation = incarnation}; }

TEST(Clocks, SynchronousAWorkerReadsWhenAllHavePushed) {
  Clocks clocks(0);
  clocks.set_living({life(1), life(2)});
  EXPECT_FALSE(clocks.is_round_over()) << "nobody has pushed";
  EXPECT_TRUE(clocks.may_read(life(1)));
  clocks.push(life(1));
  EXPECT_FALSE(clocks.may_read(life(1)));
  EXPECT_FALSE(clocks.is_round_over());
  clocks.push(life(2));
  EXPECT_TRUE(clocks.is_round_over());
  clocks.update();
  EXPECT_TRUE(clocks.may_read(life(1)));
  EXPECT_FALSE(clocks.is_round_over());
}

TEST(Clocks, SynchronousNobodyWaitsForTheDeadTheRestingAndThoseThatLeft) {
  Clocks clocks(0);
  clocks.set_living({life(1), life(2), life(3), life(4)});
  clocks.push(life(1));
  clocks.rest(life(2));
  clocks.leave(life(3));
  EXPECT_FALSE(clocks.is_round_over());
  clocks.set_living({life(1), life(2), life(3)});
  EXPECT_TRUE(clocks.is_round_over());
  clocks.work(life(2));
  EXPECT_FALSE(clocks.is_round_over());
  EXPECT_TRUE(clocks.had_leavers());
  EXPECT_TRUE(clocks.has_workers());
}

TEST(Clocks, BoundedAWorkerWaitsForTheSlowest) {
  Clocks clocks(2);
  clocks.set_living({life(1), life(2)});
  for (int i = 0; i < 2; ++i) clocks.push(life(1));
  EXPECT_TRUE(clocks.may_read(life(1)));
  clocks.push(life(1));
  EXPECT_FALSE(clocks.may_read(life(1)));
  clocks.push(life(2));
  EXPECT_TRUE(clocks.may_read(life(1)));
}

TEST(Clocks, OneThatComesBackBeginsWithTheSlowest) {
  Clocks clocks(1);
  clocks.set_living({life(1), life(2)});
  for (int i = 0; i < 9; ++i) clocks.push(life(1));
  for (int i = 0; i < 8; ++i) clocks.push(life(2));
  clocks.set_living({life(1), life(2), life(3, 1)});
  EXPECT_EQ(clocks.clock_of(life(3, 1)), 8U);
  clocks.rest(life(3, 1));
  for (int i = 0; i < 4; ++i) clocks.push(life(2));
  clocks.work(life(3, 1));
  EXPECT_EQ(clocks.clock_of(life(3, 1)), 9U) << "the slowest of those that worked on";
}

TEST(Clocks, WhereNobodyWorksANewcomerBeginsWithTheFurthest) {
  Clocks clocks(1);
  clocks.set_living({life(1)});
  for (int i = 0; i < 9; ++i) clocks.push(life(1));
  clocks.rest(life(1));
  clocks.set_living({life(1), life(2, 1)});
  EXPECT_EQ(clocks.clock_of(life(2, 1)), 9U);
}

TEST(Clocks, WhoIsNoWorkerReadsBetweenRounds) {
  Clocks clocks(0), bounded(1);
  clocks.set_living({life(2), life(3)});
  bounded.set_living({life(2)});
  EXPECT_TRUE(clocks.may_read(life(1)));
  clocks.push(life(2));
  EXPECT_FALSE(clocks.may_read(life(1)));
  clocks.drop(life(3));  // nobody waits for it
  EXPECT_TRUE(clocks.is_round_over());
  EXPECT_FALSE(clocks.had_leavers());
  clocks.update();
  EXPECT_TRUE(clocks.may_read(life(1)));
  bounded.push(life(2));
  EXPECT_TRUE(bounded.may_read(life(1)));
}

TEST(Clocks, UnboundedNobodyWaits) {
  Clocks clocks(std::nullopt);
  clocks.set_living({life(1), life(2)});
  for (int i = 0; i < 1000; ++i) clocks.push(life(1));
  EXPECT_TRUE(clocks.may_read(life(1)));
}

/// Workers that read and push, die, come back, rest and leave, in a random order. No read is older than the bound, and somebody can
/// always go on.
void play(std::uint32_t seed) {
  std::mt19937 random(seed);
  const int bound = static_cast<int>(random() % 4);
  Clocks clocks(bound);
  struct Worker {
    Life life;
    bool has_read = false, rests = false, has_left = false, is_dead = false;
  };
  std::vector<Worker> workers;
  for (int rank = 0; rank < 2 + static_cast<int>(random() % 3); ++rank) workers.push_back({life(rank)});
  const auto tell_living = [&] {
    std::vector<Life> living;
    for (const Worker& worker : workers) {
      if (!worker.is_dead) living.push_back(worker.life);
    }
    clocks.set_living(living);
  };
  tell_living();
  for (int event = 0; event < 60; ++event) {
    Worker& worker = workers[random() % workers.size()];
    const auto chance = random() % 20;
    if (worker.is_dead) {
      if (chance < 5) {
        worker = {life(worker.life.rank, worker.life.incarnation + 1)};
        tell_living();
      }
    } else if (chance == 0) {
      worker.is_dead = true;
      tell_living();
    } else if (worker.has_left) {
      continue;
    } else if (chance == 1 && !worker.has_read) {
      worker.rests = !worker.rests;
      worker.rests ? clocks.rest(worker.life) : clocks.work(worker.life);
    } else if (chance == 2 && !worker.has_read && event > 40) {
      worker.has_left = true;
      clocks.leave(worker.life);
    } else if (!worker.rests && worker.has_read) {
      clocks.push(worker.life);
      worker.has_read = false;
    } else if (!worker.rests && clocks.may_read(worker.life)) {
      for (const Worker& other : workers) {
        if (other.is_dead || other.rests || other.has_left) continue;
        ASSERT_GE(clocks.clock_of(other.life) + static_cast<std::uint64_t>(bound),
                  clocks.clock_of(worker.life))
            << "seed " << seed << ": a read is older than the bound";
      }
      worker.has_read = true;
    }
    if (bound == 0 && clocks.is_round_over()) clocks.update();
    bool somebody_works = false, somebody_moves = false;
    for (const Worker& one : workers) {
      if (one.is_dead || one.rests || one.has_left) continue;
      somebody_works = true;
      somebody_moves = somebody_moves || one.has_read || clocks.may_read(one.life);
    }
    ASSERT_TRUE(!somebody_works || somebody_moves) << "seed " << seed << ": all wait for each other";
  }
}

TEST(Clocks, OfRandomWorkersAllowNoReadThatIsTooOldAndNoStandstill) {
  const char* const wanted = std::getenv("SOAK_INTERLEAVINGS");
  const int rounds = wanted != nullptr ? std::stoi(wanted) : 20'000;
  for (int round = 0; round < rounds && !::testing::Test::HasFatalFailure(); ++round)
    play(static_cast<std::uint32_t>(round));
}

}  // namespace
}  // namespace lockstep::ps
