#include "lockstep/train/sharded/step_versions.h"

#include <gtest/gtest.h>

#include "lockstep/group/collectives.h"
#include "lockstep/train/tensor/ranks_test.h"

namespace lockstep {
namespace {

using test::on_ranks;

/// `body` on one rank after the other.
void in_turn(const Group& group, const std::function<void(int rank)>& body) {
  for (int rank = 0; rank < group.size(); ++rank) {
    if (rank == group.rank()) body(rank);
    barrier(group).wait();
  }
}

TEST(StepVersions, AreWholeOnceAllRanksHaveEndedTheSameStep) {
  on_ranks(3, [](const Group& group) {
    StepVersions versions(group, true);
    EXPECT_TRUE(versions.are_whole());
    barrier(group).wait();
    for (int step = 0; step < 3; ++step) {
      in_turn(group, [&](int) {
        versions.begin();
        EXPECT_FALSE(versions.are_whole());
      });
      in_turn(group, [&](int rank) {
        versions.end();
        EXPECT_EQ(versions.are_whole(), rank == 2);
      });
      EXPECT_TRUE(versions.are_whole());
      barrier(group).wait();
    }
  });
}

TEST(StepVersions, AreNotWholeWhereOneRankHasTakenAStepThatOthersHaveNot) {
  on_ranks(2, [](const Group& group) {
    StepVersions versions(group, true);
    if (group.rank() == 1) {
      versions.begin();
      versions.end();
    }
    barrier(group).wait();
    EXPECT_FALSE(versions.are_whole());
    barrier(group).wait();
  });
}

TEST(StepVersions, LetNobodyBeginAfterOneHasGivenUp) {
  on_ranks(2, [](const Group& group) {
    StepVersions versions(group, true);
    if (group.rank() == 0) versions.give_up();
    barrier(group).wait();
    EXPECT_THROW(versions.begin(), Error);
    EXPECT_TRUE(versions.are_whole());
    barrier(group).wait();
  });
}

TEST(StepVersions, AreThisRanksOwnWhereRanksDoNotChangeTheSameMemory) {
  on_ranks(2, [](const Group& group) {
    StepVersions versions(group, false);
    if (group.rank() == 1) versions.begin();
    barrier(group).wait();
    EXPECT_EQ(versions.are_whole(), group.rank() == 0);
    if (group.rank() == 1) versions.end();
    EXPECT_TRUE(versions.are_whole());
    barrier(group).wait();
  });
}

}  // namespace
}  // namespace lockstep
