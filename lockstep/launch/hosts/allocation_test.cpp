#include "lockstep/launch/hosts/allocation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <fstream>

#include "lockstep/base/failure_test.h"
#include "lockstep/base/folder_test.h"

namespace lockstep::launch {
namespace {

using ::testing::ElementsAre;

/// Sets variables of a batch system for one test, without those of any other.
class AllocationTest : public test::FolderTest {
 protected:
  AllocationTest() { clear(); }
  ~AllocationTest() override { clear(); }

  static void set(const char* name, const std::string& value) { ::setenv(name, value.c_str(), 1); }
  static std::string why() {
    return test::failure_of([] { find_allocation(); }, ErrorCode::invalid_argument);
  }
  std::string file_of(const std::string& text) const { return file("nodes", text).string(); }

 private:
  static void clear() {
    for (const char* name :
         {"SLURM_JOB_ID", "SLURM_JOB_NODELIST", "SLURM_TASKS_PER_NODE", "SLURM_JOB_CPUS_PER_NODE",
          "SLURM_CPUS_PER_TASK", "PBS_NODEFILE", "COBALT_NODEFILE"})
      ::unsetenv(name);
  }
};

TEST_F(AllocationTest, IsNoneOutsideOfABatchSystem) { EXPECT_FALSE(find_allocation()); }

TEST_F(AllocationTest, OfSlurmHasItsTasksAsSlots) {
  set("SLURM_JOB_ID", "17");
  set("SLURM_JOB_NODELIST", "n[1-3]");
  set("SLURM_TASKS_PER_NODE", "4(x2),1");
  set("SLURM_JOB_CPUS_PER_NODE", "64(x3)");
  const auto found = find_allocation().value();
  EXPECT_EQ(found.system, Allocation::System::slurm);
  EXPECT_EQ(found.source, "Slurm's job 17 (SLURM_JOB_NODELIST)");
  EXPECT_THAT(found.hosts, ElementsAre(Host{"n1", 4}, Host{"n2", 4}, Host{"n3", 1}));
  EXPECT_TRUE(found.has_slots);
}

TEST_F(AllocationTest, OfSlurmWithoutTasksHasAsManySlotsAsItsCoresAreEnoughFor) {
  set("SLURM_JOB_NODELIST", "n[1-2]");
  set("SLURM_JOB_CPUS_PER_NODE", "16,3");
  set("SLURM_CPUS_PER_TASK", "4");
  EXPECT_THAT(find_allocation()->hosts, ElementsAre(Host{"n1", 4}, Host{"n2", 1}));
}

TEST_F(AllocationTest, OfSlurmNamesTheVariableThatIsWrong) {
  set("SLURM_JOB_NODELIST", "n[1-2]");
  set("SLURM_TASKS_PER_NODE", "2(x3)");
  EXPECT_EQ(why(), "SLURM_TASKS_PER_NODE=2(x3) is about 3 hosts, but SLURM_JOB_NODELIST has 2");
  set("SLURM_JOB_NODELIST", "n[1-");
  EXPECT_EQ(why(), "SLURM_JOB_NODELIST=\"n[1-\": expected a number at character 5");
}

TEST_F(AllocationTest, OfPbsHasALineForEachSlot) {
  set("PBS_NODEFILE", file_of("a\na\nb\n"));
  const auto found = find_allocation().value();
  EXPECT_EQ(found.system, Allocation::System::pbs);
  EXPECT_THAT(found.hosts, ElementsAre(Host{"a", 2}, Host{"b", 1}));
  EXPECT_TRUE(found.has_slots);
}

TEST_F(AllocationTest, OfCobaltHasALineForEachHost) {
  set("COBALT_NODEFILE", file_of("a\nb\n"));
  const auto found = find_allocation().value();
  EXPECT_EQ(found.system, Allocation::System::cobalt);
  EXPECT_FALSE(found.has_slots);
  EXPECT_THAT(share_evenly(5, found.hosts), ElementsAre(Host{"a", 3}, Host{"b", 2}));
  EXPECT_THAT(share_evenly(1, found.hosts), ElementsAre(Host{"a", 1}));
}

TEST_F(AllocationTest, WhoseFileIsMissingSaysSo) {
  set("PBS_NODEFILE", "/nowhere/nodes");
  EXPECT_EQ(why(), "PBS_NODEFILE=/nowhere/nodes cannot be read: No such file or directory");
}

}  // namespace
}  // namespace lockstep::launch
