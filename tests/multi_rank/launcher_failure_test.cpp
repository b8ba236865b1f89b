// A rank fails: who is named, what the others still can do, and that nobody is left.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "launcher_job.h"

namespace lockstep::launch {
namespace {

namespace fs = std::filesystem;

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;
using ::testing::StartsWith;

Result run_role(int ranks, const std::string& role,
                std::chrono::milliseconds report_grace = std::chrono::seconds(20)) {
  RunOptions options = roles(ranks);
  options.report_grace = report_grace;
  return run_job(options, {.variables = {{"LOCKSTEP_TEST_ROLE", role}}});
}

void limit_to(__rlimit_resource resource, rlim_t most) {
  const rlimit limit{most, most};
  if (setrlimit(resource, &limit) != 0) _exit(99);
}

/// A cgroup of this test's own, of 100 MiB; its folder is empty where there can be none.
class SmallCgroup {
 public:
  SmallCgroup() {
    const std::string memory = "/sys/fs/cgroup/memory";
    const bool is_v1 = fs::exists(memory);
    const fs::path made =
        fs::path(is_v1 ? memory : "/sys/fs/cgroup") / ("lockstep-test-" + std::to_string(getpid()));
    std::error_code error;
    if (!fs::create_directory(made, error)) return;
    folder_ = made;
    std::ofstream limit(folder_ / (is_v1 ? "memory.limit_in_bytes" : "memory.max"));
    if (limit << (100 << 20) << std::flush) return;
    fs::remove(folder_, error);
    folder_.clear();
  }
  ~SmallCgroup() {
    std::error_code error;  // the kernel needs a moment after the last process has ended
    for (int tries = 0; !folder_.empty() && !fs::remove(folder_, error) && tries < 500; ++tries)
      usleep(10'000);
    EXPECT_FALSE(!folder_.empty() && fs::exists(folder_)) << folder_;
  }
  SmallCgroup(const SmallCgroup&) = delete;
  SmallCgroup& operator=(const SmallCgroup&) = delete;

  bool exists() const { return !folder_.empty(); }
  void enter() const {
    if (!(std::ofstream(folder_ / "cgroup.procs") << getpid() << std::flush)) _exit(99);
  }

 private:
  fs::path folder_;
};

TEST(LauncherFailure, SaysThatTheOomKillerDidIt) {
  const SmallCgroup small;
  if (!small.exists()) GTEST_SKIP() << "no cgroup can be made here, which takes root's rights";
  const std::string script = "[ $RANK = 1 ] || exec sleep 1000; exec tail /dev/zero";
  JobUnderTest job(shells(2, script), {.in_launcher = [&] { small.enter(); }});
  const Result result = job.finish();
  EXPECT_NE(result.exit_code, 0);
  EXPECT_THAT(result.err,
              HasSubstr("the system's OOM killer did it: there was no memory left of the 0.09766 GiB that "
                        "its cgroup may have"));
}

TEST(LauncherFailure, SaysWhichLimitOnOpenFilesToRaise) {
  const std::string script = "exec 9>$FOLDER/life; exec sleep 1000";
  JobUnderTest job(shells(100, script), {.in_launcher = [] { limit_to(RLIMIT_NOFILE, 60); }});
  const Result result = job.finish();
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_EQ(rest_of_line(result.err, ": Too many open files"),
            "; ulimit -n is 60: raise it, or start fewer ranks");
  job.await_nobody_left();
}

// Above guard, job and ranks there is no room for the thread of the store; with less for none of those.
TEST(LauncherFailure, SaysWhichLimitOnProcessesToRaise) {
  for (const rlim_t most : {1, 2, 3, 4}) {
    const auto limit_processes = [&] {
      limit_to(RLIMIT_NPROC, most);
      if (getuid() == 0 && setuid(static_cast<uid_t>(1'000'000 + getpid())) != 0) _exit(99);  // exempt
    };
    const Result result = run_job(shells(2, "exit 0"), {.in_launcher = limit_processes});
    EXPECT_EQ(result.exit_code, 1);
    const std::string rest = rest_of_line(result.err, ": Resource temporarily unavailable");
    EXPECT_THAT(rest, StartsWith("; ulimit -u is " + std::to_string(most)));
    EXPECT_THAT(rest,
                AllOf(HasSubstr(": raise "), HasSubstr("container"), HasSubstr("or start fewer ranks")));
  }
}

TEST(LauncherFailure, AllWellIsZero) { EXPECT_EQ(run_job(shells(3, "exit 0")).exit_code, 0); }

TEST(LauncherFailure, RanksOfAPlainProgramMayEndWhenTheyWant) {
  const std::string script =
      "if [ $RANK = 0 ]; then echo $$ > $FOLDER/pid; exit 0; fi; while ! [ -s $FOLDER/pid ]; do :; done;"
      "while kill -0 $(cat $FOLDER/pid) 2>/dev/null; do :; done; echo last";
  const Result result = run_job(shells(2, script));
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.out, "[1] last\n");
  EXPECT_THAT(result.err, Not(HasSubstr("ended with")));
}

TEST(LauncherFailure, NamesTheRankThatFailedAndReturnsItsCode) {
  const std::string script =
      "exec 9>$FOLDER/life; [ $RANK = 2 ] || exec sleep 1000;"
      "for i in 1 2 3 4 5 6 7 8 9 10 11 12; do echo line $i >&2; done; exit 42";
  JobUnderTest job(shells(4, script));
  const Result result = job.finish();
  job.await_nobody_left();
  EXPECT_EQ(result.exit_code, 42);
  const std::string summary = result.err.substr(result.err.find("lockstep run: rank 2"));
  EXPECT_THAT(summary, MatchesRegex("lockstep run: rank 2 \\(pid [0-9]+\\) ended with exit code 42\n"
                                    "  its last lines on stderr:\n    line 3\n(    line [0-9]+\n){9}"
                                    "  ranks 0-1, 3: ended by the launcher\n"));
}

TEST(LauncherFailure, NamesTheSignal) {
  RunOptions options = shells(2, "[ $RANK = 1 ] && kill -SEGV $$; exec sleep 1000");
  options.report_grace = std::chrono::milliseconds(50);
  const Result result = run_job(options);
  EXPECT_EQ(result.exit_code, 128 + SIGSEGV);
  EXPECT_THAT(result.err, HasSubstr("was killed by signal 11 (SIGSEGV)\n  it wrote nothing to stderr\n"));
}

// Rank 1 holds the writing end of a fifo: rank 0 reads its end when rank 1 is gone, and waits until the
// launcher knows.
TEST(LauncherFailure, SurvivorsMayReportFirst) {
  const std::string script =
      "mkfifo $FOLDER/link 2>/dev/null; if [ $RANK = 1 ]; then exec 8>$FOLDER/link; echo $$ >&8; exit 6; fi;"
      "trap 'echo told to end >&2' TERM; read pid < $FOLDER/link; while kill -0 $pid 2>/dev/null; do :; done;"
      "echo rank 1 is gone >&2; exit 5";
  RunOptions options = shells(2, script);
  options.report_grace = std::chrono::seconds(20);
  const Result result = run_job(options);
  EXPECT_EQ(result.exit_code, 6);
  EXPECT_THAT(result.err, HasSubstr("[0] rank 1 is gone\n"));
  EXPECT_THAT(result.err, Not(HasSubstr("told to end")));
  EXPECT_THAT(result.err,
              AllOf(HasSubstr("lockstep run: rank 1 (pid "), HasSubstr("  rank 0: exit code 5\n")));
}

TEST(LauncherFailure, ThoseThatDoNotEndAreTold) {
  const std::string script =
      "if [ $RANK = 0 ]; then trap 'echo told to end; exit 0' TERM; echo listens > $FOLDER/ready;"
      "while :; do :; done; fi; while ! [ -s $FOLDER/ready ]; do :; done; exit 6";
  RunOptions options = shells(2, script);
  options.report_grace = std::chrono::milliseconds(50);
  options.terminate_grace = std::chrono::seconds(20);
  const Result result = run_job(options);
  EXPECT_EQ(result.exit_code, 6);
  EXPECT_THAT(result.out, HasSubstr("[0] told to end\n"));
}

TEST(LauncherFailure, ThoseThatDoNotListenAreKilled) {
  const std::string script =
      "exec 9>$FOLDER/life; if [ $RANK = 0 ]; then trap '' TERM INT; echo deaf > $FOLDER/deaf; while :; do "
      "sleep 1000; done; fi;"
      "while ! [ -s $FOLDER/deaf ]; do :; done; exit 6";
  RunOptions options = shells(2, script);
  options.report_grace = std::chrono::milliseconds(50);
  JobUnderTest job(options);
  EXPECT_EQ(job.finish().exit_code, 6);
  job.await_nobody_left();
}

TEST(LauncherFailure, AStoppedRankIsEndedInTheSameWay) {
  const std::string script =
      "exec 9>$FOLDER/life; if [ $RANK = 0 ]; then trap 'echo told to end; exit 0' TERM; echo $$ > "
      "$FOLDER/pid;"
      "while :; do :; done; fi; while ! [ -s $FOLDER/pid ]; do :; done; kill -STOP $(cat $FOLDER/pid); exit "
      "6";
  RunOptions options = shells(2, script);
  options.report_grace = std::chrono::milliseconds(50);
  options.terminate_grace = std::chrono::seconds(20);
  JobUnderTest job(options);
  const Result result = job.finish();
  EXPECT_EQ(result.exit_code, 6);
  EXPECT_THAT(result.out, HasSubstr("[0] told to end\n"));
  job.await_nobody_left();
}

TEST(LauncherFailure, ARankThatLeftEarlyIsToBlame) {
  const Result result = run_role(3, "leaves_early");
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, HasSubstr("lockstep run: rank 1 (pid "));
  EXPECT_THAT(result.err, HasSubstr(") ended with exit code 0 while others still needed it\n"));
  EXPECT_THAT(result.err, HasSubstr(": rank 1 left early\n"));
  EXPECT_THAT(result.err, HasSubstr("  ranks 0, 2: exit code 7\n"));
}

TEST(LauncherFailure, LeavingEarlyIsAFailureThoughAllReturnZero) {
  EXPECT_EQ(run_role(2, "leaves_early_unharmed").exit_code, 1);
}

TEST(LauncherFailure, TheCulpritIsNamedThoughASurvivorEndsFirst) {
  const Result result = run_role(2, "blames_before_the_death");
  EXPECT_EQ(result.exit_code, 128 + SIGKILL);
  EXPECT_THAT(result.err, HasSubstr("lockstep run: rank 1 (pid "));
  EXPECT_THAT(result.err, HasSubstr("first cause, found by rank 0: rank 1 broke its connection\n"));
  EXPECT_THAT(result.err, HasSubstr("  rank 0: exit code 5\n"));
}

TEST(LauncherFailure, OneCauseIsShownOnceBesideTheRanksOwnLines) {
  const Result result = run_role(3, "says_what_all_say");
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_EQ(count(result.err, "] error: the ranks' calls differ\n"), 3);
  EXPECT_THAT(result.err.substr(result.err.find("lockstep run: rank 1")),
              MatchesRegex("lockstep run: rank 1 \\(pid [0-9]+\\) ended with exit code 1\n"
                           "  its last lines on stderr:\n    error: the ranks' calls differ\n"
                           "  first cause, found by rank 0: as in the lines above\n"
                           "  ranks 0, 2: exit code 1\n"));
}

TEST(LauncherFailure, SurvivorsHearOfADeathFromTheLauncher) {
  const Result result = run_role(2, "hears_from_the_launcher");
  EXPECT_EQ(result.exit_code, 128 + SIGKILL);
  EXPECT_THAT(rest_of_line(result.err, "[0] told by -1: "),
              MatchesRegex("rank 1 \\(pid [0-9]+\\) was killed by signal 9 \\(SIGKILL\\)"));
}

TEST(LauncherFailure, OneThatSaidGoodbyeHarmsNobody) {
  const Result result = run_role(2, "fails_after_goodbye", std::chrono::milliseconds(50));
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_THAT(result.err, HasSubstr("[0] cause is set: 0\n"));
}

TEST(LauncherFailure, RanksMeetInTheLaunchersStore) {
  const Result result = run_role(3, "meets_in_the_store");
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(count(result.out, "all have met\n"), 3);
}

}  // namespace
}  // namespace lockstep::launch
