// What a rank finds when it starts.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>

#include "launcher_job.h"
#include "lockstep/base/socket.h"
#include "lockstep/base/words.h"
#include "lockstep/topology/topology.h"

namespace lockstep::launch {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;

constexpr const char* print_everything =
    "echo $RANK $WORLD_SIZE $LOCAL_RANK $LOCAL_WORLD_SIZE $GROUP_RANK $MASTER_ADDR "
    "$HOROVOD_RANK $HOROVOD_SIZE $HOROVOD_LOCAL_RANK $HOROVOD_LOCAL_SIZE $HOROVOD_CROSS_RANK "
    "$HOROVOD_CROSS_SIZE;"
    "echo port.$RANK=$MASTER_PORT; echo job.$RANK=$LOCKSTEP_JOB; echo store.$RANK=$LOCKSTEP_STORE;"
    "echo cores=$LOCKSTEP_CORES";

TEST(LauncherEnvironment, TellsEachRankItsPlace) {
  const Result result = run_job(shells(3, print_everything));
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.out, HasSubstr("[0] 0 3 0 3 0 127.0.0.1 0 3 0 3 0 1\n"));
  EXPECT_THAT(result.out, HasSubstr("[2] 2 3 2 3 0 127.0.0.1 2 3 2 3 0 1\n"));
  EXPECT_THAT(result.out, HasSubstr("cores=" + std::to_string(topology::available_cores())));
  for (const char* name : {"port.", "job.", "store."}) {
    EXPECT_EQ(rest_of_line(result.out, name + std::string("0=")),
              rest_of_line(result.out, name + std::string("1=")));
  }
  const std::string job = rest_of_line(result.out, "job.0=");
  EXPECT_THAT(job, MatchesRegex("[0-9a-f]{16}"));
  EXPECT_EQ(rest_of_line(result.out, "store.0="),
            "unix:@lockstep-" + std::to_string(getuid()) + "-" + job + "-0");
  EXPECT_GT(std::stoi(rest_of_line(result.out, "port.0=")), 1023);
}

TEST(LauncherEnvironment, EachJobHasANameOfItsOwn) {
  const RunOptions options = shells(1, "echo job=$LOCKSTEP_JOB");
  EXPECT_NE(rest_of_line(run_job(options).out, "job="), rest_of_line(run_job(options).out, "job="));
}

TEST(LauncherEnvironment, LeavesNoSocketBehind) {
  const Result result = run_job(shells(2, "echo job=$LOCKSTEP_JOB; cat /proc/net/unix"));
  const std::string name = "@lockstep-" + std::to_string(getuid()) + "-" + rest_of_line(result.out, "job=");
  EXPECT_THAT(result.out, HasSubstr(name));
  std::ifstream file("/proc/net/unix");
  EXPECT_THAT(std::string((std::istreambuf_iterator<char>(file)), {}), Not(HasSubstr(name)));
}

TEST(LauncherEnvironment, InheritsItsDescriptorsAndNoOthers) {
  const auto leave_one_open = [] {
    if (open("/dev/null", O_RDONLY) < 0 || dup2(0, 77) < 0) _exit(99);
  };
  const std::string script =
      "for f in /proc/$$/fd/*; do [ -e $f ] && n=${f##*/} && case $n in "
      "0|1|2|$LOCKSTEP_CONTROL_FD|$LOCKSTEP_SECRET_FD) echo expected;; *) echo stray $n $(readlink $f);; "
      "esac; done";
  const Result result = run_job(shells(2, script), {.in_launcher = leave_one_open});
  EXPECT_EQ(count(result.out, "expected"), 10) << result.out;
  EXPECT_THAT(result.out, Not(HasSubstr("stray")));
}

TEST(LauncherEnvironment, StartsRanksWithTheSignalsOfItsCaller) {
  const Result result = run_job(shells(1, "grep -E 'Sig(Blk|Ign)' /proc/self/status"));
  EXPECT_THAT(result.out, HasSubstr("SigBlk:\t0000000000000000"));
  EXPECT_THAT(result.out, HasSubstr("SigIgn:\t0000000000000000"));
}

TEST(LauncherEnvironment, StartsRanksWithWhatItsCallerHadBlocked) {
  const auto block_alarm = [] {
    sigset_t alarm;
    sigemptyset(&alarm);
    sigaddset(&alarm, SIGALRM);
    sigprocmask(SIG_BLOCK, &alarm, nullptr);
  };
  RunOptions options;  // a shell would clear it
  options.ranks = 1;
  options.command = {"grep", "SigBlk", "/proc/self/status"};
  const Result result = run_job(options, {.in_launcher = block_alarm});
  EXPECT_THAT(result.out, HasSubstr("SigBlk:\t0000000000002000"));
}

TEST(LauncherEnvironment, WorksForACallerThatIgnoresItsChildren) {
  EXPECT_EQ(run_job(shells(2, "exit 3"), {.in_launcher = [] { (void)signal(SIGCHLD, SIG_IGN); }}).exit_code,
            3);
}

TEST(LauncherEnvironment, PinsRanksAndSaysSo) {
  const auto cores = topology::find_cores();
  const int ranks = cores.count();
  const bool has_quota = ranks != static_cast<int>(cores.numbers.size());  // nobody is pinned then
  const std::string script = "grep Cpus_allowed_list /proc/self/status; echo threads=$OMP_NUM_THREADS";
  const Result result = run_job(shells(ranks, script));
  for (int rank = 0; rank < ranks; ++rank) {
    const std::string own = std::to_string(cores.numbers[static_cast<std::size_t>(rank)]);
    const std::string list = has_quota ? base::to_ranges(cores.numbers) : own;
    EXPECT_THAT(result.out, HasSubstr("[" + std::to_string(rank) + "] Cpus_allowed_list:\t" + list + "\n"));
  }
  EXPECT_EQ(count(result.out, "threads=1\n"), ranks);
  EXPECT_THAT(result.err,
              MatchesRegex("lockstep run: [0-9]+ ranks? on [0-9]+ cores?: .*OMP_NUM_THREADS=1 .*\n"));
  EXPECT_THAT(result.err,
              HasSubstr(has_quota ? "not pinned because of the cgroup's CPU quota" : " pinned to core"));
  EXPECT_EQ(count(result.err, "\n"), 1);
}

TEST(LauncherEnvironment, LeavesTheUsersOwnSettingsAlone) {
  RunOptions options = shells(1, "grep Cpus_allowed_list /proc/self/status; echo threads=$OMP_NUM_THREADS");
  options.pin = false;
  const Result result = run_job(options, {.variables = {{"OMP_NUM_THREADS", "13"}}});
  EXPECT_THAT(result.out, HasSubstr("threads=13\n"));
  EXPECT_THAT(result.out,
              HasSubstr("Cpus_allowed_list:\t" + base::to_ranges(topology::find_cores().numbers)));
  EXPECT_EQ(result.err, "");
}

TEST(LauncherEnvironment, HonoursTheBatchSystemsShare) {
  const Result result =
      run_job(shells(1, "echo threads=$OMP_NUM_THREADS"), {.variables = {{"SLURM_CPUS_PER_TASK", "1"}}});
  EXPECT_THAT(result.out, HasSubstr("threads=1\n"));
}

TEST(LauncherEnvironment, RefusesToRunInsideARankUnlessAskedTo) {
  RunOptions options = shells(1, "echo inner rank $RANK of $WORLD_SIZE");
  const Surroundings inside{.variables = {{"LOCKSTEP_JOB", "cafe"}, {"RANK", "7"}}};
  const Result refused = run_job(options, inside);
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.err, HasSubstr("this is already rank 7 of a lockstep run"));
  EXPECT_EQ(refused.out, "");
  options.nested = true;
  EXPECT_EQ(run_job(options, inside).out, "[0] inner rank 0 of 1\n");
}

TEST(LauncherEnvironment, TakesTheWishedPortOrSaysThatItIsTaken) {
  RunOptions options = shells(1, "echo port=$MASTER_PORT");
  options.master_port = std::stoi(rest_of_line(run_job(options).out, "port="));
  EXPECT_EQ(run_job(options).out, "[0] port=" + std::to_string(options.master_port) + "\n");
  const auto occupy = [&] {
    static const Listener taken =
        Listener::bind(Endpoint::tcp("127.0.0.1", static_cast<std::uint16_t>(options.master_port)));
  };
  const Result result = run_job(options, {.in_launcher = occupy});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err,
              HasSubstr("port " + std::to_string(options.master_port) + " on 127.0.0.1 is already in use"));
}

TEST(LauncherEnvironment, SaysWhichProgramCannotStart) {
  RunOptions options;
  options.ranks = 2;
  options.command = {"lockstep-no-such-program"};
  const Result absent = run_job(options);
  EXPECT_EQ(absent.exit_code, 127);
  EXPECT_EQ(absent.err, "lockstep run: lockstep-no-such-program: there is no such program in PATH\n");
  options.command = {"/etc/passwd"};
  EXPECT_EQ(run_job(options).exit_code, 126);
}

// A program that find_program() lets pass, but not the system.
Result run_file(const std::string& content) {
  std::string name = (std::filesystem::temp_directory_path() / "lockstep-program-XXXXXX").string();
  UniqueFd(mkstemp(name.data())).reset();
  std::ofstream(name, std::ios::binary) << content;
  std::filesystem::permissions(name, std::filesystem::perms::owner_all);
  RunOptions options;
  options.ranks = 3;
  options.pin = false;
  options.command = {name};
  Result result = run_job(options, {.variables = {{"OMP_NUM_THREADS", "1"}}});
  for (std::size_t at = 0; (at = result.err.find(name)) != std::string::npos;)
    result.err.replace(at, name.size(), "PROGRAM");
  std::filesystem::remove(name);
  return result;
}

TEST(LauncherEnvironment, SaysThatAScriptNeedsItsFirstLine) {
  const Result result = run_file("echo hello\n");
  EXPECT_EQ(result.exit_code, 126);
  EXPECT_EQ(result.out, "");
  EXPECT_EQ(result.err,
            "lockstep run: cannot start PROGRAM: Exec format error; a script needs a first line such as "
            "#!/bin/sh\n");
}

TEST(LauncherEnvironment, SaysWhichInterpreterIsMissing) {
  const Result result = run_file("#!/no/such/python -u\n");
  EXPECT_EQ(result.exit_code, 126);
  EXPECT_EQ(result.out, "");
  EXPECT_EQ(
      result.err,
      "lockstep run: cannot start PROGRAM: the interpreter /no/such/python in the first line of PROGRAM "
      "does not exist\n");
}

}  // namespace
}  // namespace lockstep::launch
