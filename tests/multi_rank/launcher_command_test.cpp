// The command line of `lockstep run`.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>

#include "launcher_job.h"

namespace lockstep::launch {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// build/<preset>/bin holds this test as well as the command.
std::string tool() { return std::filesystem::read_symlink("/proc/self/exe").parent_path() / "lockstep"; }

Result lockstep(const std::vector<std::string>& arguments) {
  const auto become_the_command = [&] {
    std::vector<char*> words = {const_cast<char*>("lockstep")};
    for (const std::string& argument : arguments) words.push_back(const_cast<char*>(argument.c_str()));
    words.push_back(nullptr);
    execv(tool().c_str(), words.data());
    _exit(98);
  };
  return run_job(RunOptions{}, {.in_launcher = become_the_command});
}

TEST(LauncherCommand, RunsAProgram) {
  const Result result = lockstep({"run", "-np", "2", "sh", "-c", "echo rank $RANK of $WORLD_SIZE"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.out, AllOf(HasSubstr("[0] rank 0 of 2\n"), HasSubstr("[1] rank 1 of 2\n")));
}

TEST(LauncherCommand, KnowsTheNumberOfRanksUnderManyNames) {
  using Words = std::vector<std::string>;
  for (const Words& words : {Words{"-np", "2"}, {"-n", "2"}, {"-n2"}, {"--np", "2"}, {"--np=2"}, {"-np=2"}}) {
    Words all = {"run"};
    all.insert(all.end(), words.begin(), words.end());
    all.insert(all.end(), {"echo", "here"});
    EXPECT_EQ(count(lockstep(all).out, "here"), 2) << words.front();
  }
}

TEST(LauncherCommand, LeavesTheProgramsOptionsToTheProgram) {
  const std::vector<std::string> print = {"sh", "-c",       "echo $0 $*", "--help", "-np",
                                          "5",  "--no-pin", "--",         "-x"};
  std::vector<std::string> words = {"run", "-n", "1"};
  words.insert(words.end(), print.begin(), print.end());
  EXPECT_EQ(lockstep(words).out, "[0] --help -np 5 --no-pin -- -x\n");
  words.insert(words.begin() + 3, {"--no-prefix", "--"});
  EXPECT_EQ(lockstep(words).out, "--help -np 5 --no-pin -- -x\n");
}

TEST(LauncherCommand, PassesItsFlagsOn) {
  const Result result = lockstep({"run", "--np=1", "--no-pin", "--no-prefix", "--master-port", "31234",
                                  "--grace", "500ms", "--nested", "sh", "-c", "echo $MASTER_PORT"});
  EXPECT_EQ(result.out, "31234\n");
  EXPECT_THAT(result.err, HasSubstr("not pinned"));
}

TEST(LauncherCommand, PreloadsItsLibraryForMklBeforeWhatIsPreloadedAnyway) {
  const std::string library =
      (std::filesystem::path(tool()).parent_path() / "../lib/liblockstep_mkl_avx512.so").lexically_normal();
  const std::vector<std::string> print = {"sh", "-c", "echo \"$LD_PRELOAD\""};
  const auto preloaded = [&](std::vector<std::string> flags) {
    flags.insert(flags.begin(), {"run", "--np=1", "--no-prefix"});
    flags.insert(flags.end(), print.begin(), print.end());
    return lockstep(flags).out;
  };
  EXPECT_EQ(preloaded({}), "\n");
  EXPECT_EQ(preloaded({"--mkl-avx512"}), library + "\n");
  EXPECT_EQ(preloaded({"--mkl-avx512", "-x", "LD_PRELOAD=libm.so.6"}), library + ":libm.so.6\n");
  EXPECT_EQ(preloaded({"-x", "LD_PRELOAD=libm.so.6", "--mkl-avx512"}), library + ":libm.so.6\n");
}

struct BadUsage {
  std::vector<std::string> arguments;
  std::string complaint;
};

TEST(LauncherCommand, AnswersWrongUsageWithOneLineAndAHint) {
  const std::vector<BadUsage> all = {
      {{"run", "-np", "0", "true"}, R"(-np="0" is not a whole number from 1 to 4096)"},
      {{"run", "-np", "-1", "true"}, R"(-np="-1" is not a whole number)"},
      {{"run", "-np", "x", "true"}, R"(-np="x" is not a whole number)"},
      {{"run", "-np", "2.5", "true"}, R"(-np="2.5" is not a whole number)"},
      {{"run", "-np", "99999999999", "true"}, R"(-np="99999999999" is not a whole number)"},
      {{"run", "-np"}, "--np: 1 required"},
      {{"run", "true"}, "how many ranks? Pass -np N"},
      {{"run"}, "how many ranks? Pass -np N"},
      {{"run", "-np", "2"}, "there is no program to run"},
      {{"run", "-np", "2", "--"}, "there is no program to run"},
      {{"run", "--no-such-flag", "-np", "2", "true"}, "--no-such-flag"},
      {{"run", "-np", "2", "--no-such-flag", "true"}, "--no-such-flag"},
      {{"run", "-np", "2", "--master-port", "70000", "true"},
       R"(--master-port="70000" is not a whole number)"},
      {{"run", "-np", "2", "-np", "3", "true"}, "-np is given more than once"},
      {{"run", "-n2", "--np=2", "true"}, "-np is given more than once"},
      {{"run", "-np", "2", "--grace=1s", "--grace", "2s", "true"}, "--grace is given more than once"},
      {{"run", "-np", "2", "--no-pin=5", "true"}, "--no-pin takes no value"},
      {{"run", "-np", "2", "--no-prefix=", "true"}, "--no-prefix takes no value"},
      {{"run", "-np", "2", "--nested=false", "true"}, "--nested takes no value"},
      {{"run", "-np", "2", "--grace", "soon", "true"}, R"(--grace="soon" is not a duration)"},
  };
  for (const BadUsage& bad : all) {
    const Result result = lockstep(bad.arguments);
    EXPECT_EQ(result.exit_code, 2) << bad.complaint;
    EXPECT_EQ(result.out, "");
    EXPECT_EQ(count(result.err, "\n"), 2) << result.err;
    EXPECT_THAT(result.err, AllOf(StartsWith("lockstep run: "), HasSubstr(bad.complaint),
                                  EndsWith("See `lockstep run --help`.\n")));
  }
}

TEST(LauncherCommand, SaysWhatItCanDo) {
  EXPECT_THAT(lockstep({"--version"}).out, StartsWith("lockstep 0."));
  EXPECT_THAT(lockstep({"--help"}).out, HasSubstr("run"));
  const Result help = lockstep({"run", "--help"});
  EXPECT_EQ(help.exit_code, 0);
  EXPECT_THAT(help.out,
              HasSubstr("lockstep run [-np N] [-H HOST:SLOTS,...] [options] [--] program [arguments...]"));
  for (const char* fact :
       {"SLURM_CPUS_PER_TASK", "130 after Ctrl-C", "126 or 127", "--hostfile", "without a password"})
    EXPECT_THAT(help.out, HasSubstr(fact));
  EXPECT_EQ(lockstep({}).exit_code, 2);
  EXPECT_THAT(lockstep({"walk"}).err, HasSubstr("there is no subcommand walk"));
}

TEST(LauncherCommand, TakesAFlagThatIsRepeated) {
  EXPECT_EQ(lockstep({"run", "--no-prefix", "-n", "1", "--no-prefix", "echo", "here"}).out, "here\n");
}

TEST(LauncherCommand, ReturnsTheExitCodeOfTheRank) {
  EXPECT_EQ(lockstep({"run", "-np", "2", "sh", "-c", "exit 17"}).exit_code, 17);
  EXPECT_EQ(lockstep({"run", "-np", "1", "sh", "-c", "kill -ABRT $$"}).exit_code, 134);
}

}  // namespace
}  // namespace lockstep::launch
