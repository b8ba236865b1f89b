#include "lockstep/topology/topology.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <stdlib.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>

#include "lockstep/base/error.h"

namespace lockstep::topology {
namespace {

using ::testing::ElementsAre;
using ::testing::UnorderedElementsAreArray;
using Shares = std::vector<std::vector<int>>;

std::vector<int> mask_of_this_process() {
  cpu_set_t set;
  EXPECT_EQ(sched_getaffinity(0, sizeof(set), &set), 0);
  std::vector<int> numbers;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &set)) numbers.push_back(core);
  }
  return numbers;
}

TEST(Topology, FindsTheCoresOfTheAffinityMask) {
  EXPECT_THAT(find_cores().numbers, UnorderedElementsAreArray(mask_of_this_process()));
}

TEST(Topology, FollowsANarrowerMask) {
  cpu_set_t before;
  ASSERT_EQ(sched_getaffinity(0, sizeof(before), &before), 0);
  const int last = mask_of_this_process().back();
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(last, &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
  EXPECT_THAT(find_cores().numbers, ElementsAre(last));
  EXPECT_EQ(available_cores(), 1);
  ASSERT_EQ(sched_setaffinity(0, sizeof(before), &before), 0);
}

TEST(Topology, CountIsTheSmallerOfMaskAndQuota) {
  EXPECT_EQ((Cores{{0, 1, 2, 3}, std::nullopt}.count()), 4);
  EXPECT_EQ((Cores{{0, 1, 2, 3}, 2}.count()), 2);
  EXPECT_EQ((Cores{{0, 1}, 16}.count()), 2);
  EXPECT_EQ(available_cores(), find_cores().count());
}

TEST(Topology, SplitsCoresIntoStretchesInOrder) {
  EXPECT_EQ(split_cores({0, 1, 2, 3}, 2), (Shares{{0, 1}, {2, 3}}));
  EXPECT_EQ(split_cores({0, 4, 1, 5, 2}, 2), (Shares{{0, 4}, {1, 5, 2}}));
  EXPECT_EQ(split_cores({7}, 1), (Shares{{7}}));
}

TEST(Topology, GivesEachCoreToOneRankWhereThereAreEnough) {
  for (int cores = 1; cores <= 20; ++cores) {
    std::vector<int> numbers(static_cast<std::size_t>(cores));
    for (int i = 0; i < cores; ++i) numbers[static_cast<std::size_t>(i)] = 3 * i;
    for (int ranks = 1; ranks <= cores; ++ranks) {
      std::vector<int> given;
      for (const auto& share : split_cores(numbers, ranks)) {
        const auto least = static_cast<std::size_t>(cores / ranks);
        EXPECT_THAT(share.size(), ::testing::AnyOf(least, least + 1))
            << cores << " cores, " << ranks << " ranks";
        given.insert(given.end(), share.begin(), share.end());
      }
      EXPECT_EQ(given, numbers);
    }
  }
}

TEST(Topology, SharesCoresInTurnsWhereThereAreTooFew) {
  EXPECT_EQ(split_cores({4, 5}, 5), (Shares{{4}, {5}, {4}, {5}, {4}}));
}

TEST(Topology, APinnedRankKnowsTheCoresOfTheJobFromItsLauncher) {
  unsetenv("LOCKSTEP_CORES");
  EXPECT_DOUBLE_EQ(ranks_per_core(3), 3.0 / available_cores());
  setenv("LOCKSTEP_CORES", "8", 1);
  EXPECT_DOUBLE_EQ(ranks_per_core(4), 0.5);
  setenv("LOCKSTEP_CORES", "many", 1);
  EXPECT_THROW(ranks_per_core(4), Error);
  unsetenv("LOCKSTEP_CORES");
}

TEST(CoreList, IsReadAsItIsWritten) {
  EXPECT_EQ(cores_of_list(core_list()), mask_of_this_process());
  EXPECT_EQ(cores_of_list("0-2,5,7-8"), (std::vector{0, 1, 2, 5, 7, 8}));
}

TEST(CoreList, IsNoneOfOtherTexts) {
  for (const char* text : {"", "a", "1-", "-1", "2-1", "0-99999999", "0,,1", "1 2", "99999999999999999999"})
    EXPECT_EQ(cores_of_list(text), std::nullopt) << text;
}

TEST(CgroupQuota, IsRoundedUp) {
  EXPECT_EQ(detail::parse_quota("200000 100000"), 2);
  EXPECT_EQ(detail::parse_quota("200001 100000"), 3);
  EXPECT_EQ(detail::parse_quota("1000 100000"), 1);
}

TEST(CgroupQuota, IsAbsentWhereThereIsNoneOrItMakesNoSense) {
  for (const char* text :
       {"max 100000", "-1 100000", "", " ", "200000", "200000 ", "0 100000", "200000 0", "1 -1",
        "200000 100000x", "x 100000", "99999999999999999999 1", "9000000000000000000 1", "1e9 100000"}) {
    EXPECT_EQ(detail::parse_quota(text), std::nullopt) << '"' << text << '"';
  }
}

TEST(CgroupQuota, PathsAreThoseThatLimitProcessorTime) {
  const auto groups = detail::parse_cgroup_paths(
      "12:cpuset:/a\n5:cpu,cpuacct:/v1\nnonsense\n7:cpu\n3:cpu:relative\n2:cpu:/../out\n0::/v2/"
      "deeper:odd\n0::/last");
  ASSERT_EQ(groups.size(), 3U);
  EXPECT_EQ(groups[0].path, "/v1");
  EXPECT_FALSE(groups[0].unified);
  EXPECT_EQ(groups[1].path, "/v2/deeper:odd");
  EXPECT_TRUE(groups[1].unified);
  EXPECT_EQ(groups[2].path, "/last");
}

class MadeTree : public ::testing::Test {
 protected:
  MadeTree() {
    std::string name = (std::filesystem::temp_directory_path() / "lockstep-topology-XXXXXX").string();
    top_ = mkdtemp(name.data());
  }
  ~MadeTree() override { std::filesystem::remove_all(top_); }
  void write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories((top_ / path).parent_path());
    std::ofstream(top_ / path) << text;
  }
  std::filesystem::path top_;
};

class CgroupTree : public MadeTree {
 protected:
  std::optional<int> find(const std::string& proc_self_cgroup) {
    return detail::find_quota(detail::parse_cgroup_paths(proc_self_cgroup), top_.string());
  }
};

TEST_F(CgroupTree, TheTightestQuotaUpToTheRootCounts) {
  write("a/b/cpu.max", "800000 100000\n");
  write("a/cpu.max", "300000 100000\n");
  write("a/b/c/cpu.max", "max 100000\n");
  EXPECT_EQ(find("0::/a/b/c\n"), 3);
  EXPECT_EQ(find("0::/elsewhere\n"), std::nullopt);
}

TEST_F(CgroupTree, InAContainerTheRootHoldsTheLimit) {
  write("cpu.max", "150000 100000\n");
  EXPECT_EQ(find("0::/\n"), 2);
  EXPECT_EQ(find("0::/not/visible/here\n"), 2);
}

TEST_F(CgroupTree, VersionOneIsReadFromItsTwoFiles) {
  write("cpu,cpuacct/job/cpu.cfs_quota_us", "400000\n");
  write("cpu,cpuacct/job/cpu.cfs_period_us", "100000\n");
  write("cpu,cpuacct/cpu.cfs_quota_us", "-1\n");
  write("cpu,cpuacct/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(find("4:cpu,cpuacct:/job\n"), 4);
  EXPECT_EQ(find("4:memory:/job\n"), std::nullopt);
}

TEST_F(CgroupTree, AnEndlessFileOrPathDoesNoHarm) {
  write("a/cpu.max", std::string(1 << 20, '9'));
  std::string path;
  for (int i = 0; i < 1000; ++i) path += "/a";
  EXPECT_EQ(find("0::/a\n"), std::nullopt);
  EXPECT_EQ(find("0::" + path + "\n"), std::nullopt);
}

class MemoryNodes : public MadeTree {
 protected:
  int find(const std::vector<int>& cores) { return detail::memory_node(top_.string(), cores); }
};

TEST_F(MemoryNodes, AreThoseThatAllCoresAreBeside) {
  for (const char* file :
       {"node0/cpu0", "node0/cpu2", "node10/cpu1", "node10/cpu3", "node10/meminfo", "possible"})
    write(file, "");
  EXPECT_EQ(find({0}), 0);
  EXPECT_EQ(find({0, 2}), 0);
  EXPECT_EQ(find({3, 1}), 10);
  EXPECT_EQ(find({0, 1}), -1) << "beside two";
}

TEST_F(MemoryNodes, WithoutCoresDoNotCount) {
  for (const char* file : {"node0/cpu0", "node1/meminfo", "power/control"}) write(file, "");
  EXPECT_EQ(find({0}), 0);
}

TEST_F(MemoryNodes, AreUnknownWhereTheSystemDoesNotSay) {
  EXPECT_EQ(find({0}), -1);
  EXPECT_EQ(detail::memory_node((top_ / "missing").string(), {0}), -1);
}

}  // namespace
}  // namespace lockstep::topology
