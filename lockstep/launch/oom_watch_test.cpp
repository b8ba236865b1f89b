#include "lockstep/launch/oom_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "lockstep/base/folder_test.h"

namespace lockstep::launch {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

/// /proc and /sys of a test's own.
class TheOomWatch : public test::FolderTest {
 protected:
  std::string root() const { return folder_.string() + "/"; }
  void write(const std::string& name, const std::string& text) const {
    std::filesystem::create_directories((folder_ / name).parent_path());
    std::ofstream(folder_ / name) << text;
  }
};

TEST_F(TheOomWatch, CountsThoseOfItsCgroup) {
  write("proc/self/cgroup", "0::/job\n");
  write("proc/vmstat", "oom_kill 7\n");
  write("sys/fs/cgroup/job/memory.max", "2147483648\n");
  write("sys/fs/cgroup/job/memory.events", "low 0\nhigh 0\nmax 3\noom 1\noom_kill 1\noom_group_kill 0\n");
  OomWatch watch(root());
  EXPECT_THAT(watch.explain_kill(), IsEmpty()) << "that one was before";
  write("proc/vmstat", "oom_kill 8\n");
  EXPECT_THAT(watch.explain_kill(), IsEmpty()) << "that one was another's";
  write("sys/fs/cgroup/job/memory.events", "low 0\nhigh 0\nmax 3\noom 1\noom_kill 3\n");
  EXPECT_THAT(watch.explain_kill(),
              AllOf(HasSubstr("OOM killer did it"), HasSubstr("the 2 GiB that its cgroup may have")));
  EXPECT_THAT(watch.explain_kill(), HasSubstr("OOM killer"));
  EXPECT_THAT(watch.explain_kill(), IsEmpty()) << "there were two";
}

TEST_F(TheOomWatch, ReadsVersion1AndKnowsNoLimitWhereThereIsNone) {
  write("proc/self/cgroup", "5:memory:/job\n4:cpu,cpuacct:/job\n");
  write("sys/fs/cgroup/memory/job/memory.limit_in_bytes", "9223372036854771712\n");
  write("sys/fs/cgroup/memory/job/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 0\n");
  OomWatch watch(root());
  write("sys/fs/cgroup/memory/job/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n");
  EXPECT_THAT(watch.explain_kill(), AllOf(HasSubstr("OOM killer did it"), Not(HasSubstr("GiB"))));
}

TEST_F(TheOomWatch, TakesTheWholeSystemsCounterWhereNoOtherIsTold) {
  write("proc/self/cgroup", "0::/\n");
  write("proc/vmstat", "nr_free_pages 5\noom_kill 7\n");
  OomWatch watch(root());
  write("proc/vmstat", "nr_free_pages 5\noom_kill 8\n");
  EXPECT_THAT(watch.explain_kill(), HasSubstr("OOM killer has just killed a process"));
}

TEST_F(TheOomWatch, SaysNothingWhereNothingIsKnown) {
  OomWatch watch(root());
  EXPECT_THAT(watch.explain_kill(), IsEmpty());
  EXPECT_EQ(detail::counter_in("oom_kill x\noom_kill_disable 3\noom_kill", "oom_kill"), std::nullopt);
}

}  // namespace
}  // namespace lockstep::launch
