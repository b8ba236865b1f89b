#include "lockstep/launch/placement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include "lockstep/base/error.h"

namespace lockstep::launch {
namespace {

using ::testing::HasSubstr;
using Shares = std::vector<std::vector<int>>;

topology::Cores cores(int count, std::optional<int> quota = std::nullopt) {
  topology::Cores found{.quota = quota};
  for (int i = 0; i < count; ++i) found.numbers.push_back(i);
  return found;
}

TEST(Placement, OneRankPerCore) {
  const Placement placement = place(cores(2), {.ranks = 2});
  EXPECT_EQ(placement.pinned, (Shares{{0}, {1}}));
  EXPECT_EQ(placement.threads, 1);
  EXPECT_EQ(placement.cores, 2);
  EXPECT_EQ(
      placement.line,
      "lockstep run: 2 ranks on 2 cores: rank r pinned to core r, OMP_NUM_THREADS=1 (set OMP_NUM_THREADS or "
      "--no-pin to change)");
}

TEST(Placement, SeveralCoresPerRank) {
  const Placement placement = place(cores(9), {.ranks = 2});
  EXPECT_EQ(placement.pinned, (Shares{{0, 1, 2, 3}, {4, 5, 6, 7, 8}}));
  EXPECT_EQ(placement.threads, 4);
  EXPECT_THAT(placement.line, HasSubstr("2 ranks on 9 cores: pinned to 0-3 | 4-8, OMP_NUM_THREADS=4"));
}

TEST(Placement, MoreRanksThanCoresAreNotPinned) {
  const Placement placement = place(cores(2), {.ranks = 5});
  EXPECT_TRUE(placement.pinned.empty());
  EXPECT_EQ(placement.threads, 1);
  EXPECT_THAT(placement.line,
              HasSubstr("5 ranks on 2 cores: they share cores and are not pinned, OMP_NUM_THREADS=1"));
}

TEST(Placement, AQuotaCountsButPinsNobody) {
  const Placement placement = place(cores(64, 4), {.ranks = 2});
  EXPECT_TRUE(placement.pinned.empty());
  EXPECT_EQ(placement.threads, 2);
  EXPECT_EQ(placement.cores, 4);
  EXPECT_THAT(placement.line, HasSubstr("2 ranks on 4 cores: not pinned because of the cgroup's CPU quota"));
}

TEST(Placement, TheUsersThreadsStay) {
  const Placement placement = place(cores(4), {.ranks = 2, .user_threads = "7"});
  EXPECT_EQ(placement.threads, 0);
  EXPECT_EQ(placement.pinned.size(), 2U);
  EXPECT_THAT(placement.line, HasSubstr("OMP_NUM_THREADS as you set it (--no-pin to change)"));
}

TEST(Placement, SaysNothingWhereItDecidesNothing) {
  EXPECT_EQ(place(cores(4), {.ranks = 2, .pin = false, .user_threads = "7"}).line, "");
}

TEST(Placement, PinsNobodyWhoDoesNotWantIt) {
  const Placement placement = place(cores(4), {.ranks = 2, .pin = false});
  EXPECT_TRUE(placement.pinned.empty());
  EXPECT_EQ(placement.threads, 2);
  EXPECT_THAT(placement.line, HasSubstr("2 ranks on 4 cores: not pinned, OMP_NUM_THREADS=2"));
}

TEST(Placement, TheBatchSystemsShareIsTheMost) {
  const Placement placement = place(cores(8), {.ranks = 2, .cores_per_rank = 3});
  EXPECT_EQ(placement.pinned, (Shares{{0, 1, 2}, {4, 5, 6}}));
  EXPECT_EQ(placement.threads, 3);
  EXPECT_EQ(placement.cores, 6);
  EXPECT_EQ(place(cores(8), {.ranks = 4, .cores_per_rank = 8}).threads, 2);
}

TEST(Placement, RequestComesFromTheEnvironment) {
  unsetenv("OMP_NUM_THREADS");
  setenv("SLURM_CPUS_PER_TASK", "3", 1);
  EXPECT_EQ(placement_request(2, true).cores_per_rank, 3);
  EXPECT_EQ(placement_request(2, true).user_threads, std::nullopt);
  setenv("OMP_NUM_THREADS", "5,2", 1);
  EXPECT_EQ(placement_request(2, true).user_threads, "5,2");
  setenv("SLURM_CPUS_PER_TASK", "some", 1);
  EXPECT_THROW(placement_request(2, true), Error);
  unsetenv("SLURM_CPUS_PER_TASK");
  unsetenv("OMP_NUM_THREADS");
}

}  // namespace
}  // namespace lockstep::launch
