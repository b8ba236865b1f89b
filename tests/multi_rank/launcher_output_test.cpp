// What the ranks write, and who reads what.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <fstream>
#include <sstream>

#include "launcher_job.h"

namespace lockstep::launch {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(LauncherOutput, KeepsStdoutAndStderrApart) {
  const Result result = run_job(shells(1, "echo out; echo err >&2"));
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.out, "[0] out\n");
  EXPECT_THAT(result.err, HasSubstr("[0] err\n"));
}

bool is_whole(const std::string& line) {
  int prefix = -1;
  int rank = -2;
  int number = -1;
  int used = 0;
  std::sscanf(line.c_str(), "[%d] %*3s of rank %d, line %d%n", &prefix, &rank, &number, &used);
  return prefix == rank && static_cast<std::size_t>(used) == line.size();
}

TEST(LauncherOutput, NeverMixesLines) {
  constexpr int lines = 500;
  const std::string script = R"(i=0; while [ $i -lt 500 ]; do
    printf 'out of rank %s, ' $RANK; echo line $i; printf 'err of rank %s, ' $RANK >&2; echo line $i >&2
    i=$((i + 1)); done)";
  RunOptions options = shells(4, script);
  const Result result = run_job(options, {.one_stream = true});
  EXPECT_EQ(result.exit_code, 0);
  std::istringstream all(result.out);
  int seen = 0;
  for (std::string line; std::getline(all, line);) {
    if (line.starts_with("lockstep run:")) continue;
    EXPECT_TRUE(is_whole(line)) << line;
    ++seen;
  }
  EXPECT_EQ(seen, 4 * 2 * lines);
}

TEST(LauncherOutput, ShowsALastLineWithoutAnEnd) {
  for (int again = 0; again < 20; ++again) {
    const Result result = run_job(shells(1, "printf 'no end'; printf 'no end either' >&2"));
    EXPECT_EQ(result.out, "[0] no end\n");
    EXPECT_THAT(result.err, HasSubstr("[0] no end either\n"));
  }
}

TEST(LauncherOutput, LosesNothingOfAHugeLine) {
  const Result result = run_job(shells(2, "head -c 1000000 /dev/zero | tr '\\0' x"));
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(std::count(result.out.begin(), result.out.end(), 'x'), 2'000'000);
  EXPECT_EQ(result.out.back(), '\n');
}

TEST(LauncherOutput, WithoutPrefixPassesBytesOnUnchanged) {
  RunOptions options = shells(1, "head -c 300000 /dev/urandom | tee $FOLDER/sent");
  options.output.prefix = false;
  JobUnderTest job(options);
  const Result result = job.finish();
  std::ostringstream sent;
  sent << std::ifstream(job.folder() / "sent", std::ios::binary).rdbuf();
  EXPECT_EQ(result.out.size(), 300000U);
  EXPECT_TRUE(result.out == sent.str());
}

TEST(LauncherOutput, ShowsALineWhileTheJobStillRuns) {
  JobUnderTest job(shells(2, "echo early; read x < $FOLDER/life; echo late"));
  job.await("early", 2);
  job.send(SIGTERM);
  EXPECT_THAT(job.finish().out, Not(HasSubstr("late")));
}

TEST(LauncherOutput, OnlyRankZeroReadsStdin) {
  const Result result = run_job(shells(3, "sed s/^/read:/; echo end"), {.input = "one\ntwo\n"});
  EXPECT_EQ(count(result.out, "[0] read:one\n[0] read:two\n"), 1);
  EXPECT_EQ(count(result.out, "read:"), 2);
  EXPECT_EQ(count(result.out, "end"), 3);
}

TEST(LauncherOutput, AReaderThatLeavesEndsTheWriters) {
  const auto close_reading_end = [] {
    std::array<int, 2> ends{};
    if (pipe(ends.data()) != 0 || dup2(ends[1], 1) < 0) _exit(99);
    close(ends[0]);
    close(ends[1]);
  };
  const Result result = run_job(shells(2, "trap - PIPE; exec yes"), {.in_launcher = close_reading_end});
  EXPECT_EQ(result.exit_code, 128 + SIGPIPE);
  EXPECT_THAT(result.err, HasSubstr("was killed by signal 13 (SIGPIPE)"));
}

// Rank 0 writes again, and more than any pipe holds, once the launcher has said that it cannot.
void expect_that_a_full_disk_is_said(int code_of_the_job, int exit_code) {
  const auto fill_stdout = [] {
    if (dup2(open("/dev/full", O_WRONLY | O_CLOEXEC), 1) < 0) _exit(99);
  };
  const std::string script =
      "exec 9>$FOLDER/life; [ $RANK = 0 ] || exit 0; echo lost; while ! [ -e $FOLDER/said ]; do :; done;"
      "head -c 1000000 /dev/zero; echo $? went on >&2; exit " +
      std::to_string(code_of_the_job);
  JobUnderTest job(shells(2, script), {.in_launcher = fill_stdout});
  job.await("is lost");
  std::ofstream(job.folder() / "said") << "";
  const Result result = job.finish();
  EXPECT_EQ(result.exit_code, exit_code);
  EXPECT_THAT(result.err, HasSubstr("[0] 0 went on\n"));
  EXPECT_EQ(count(result.err,
                  "lockstep run: cannot write to stdout: No space left on device; the ranks' output "
                  "from here on is lost\n"),
            1);
  EXPECT_EQ(count(result.err, "cannot write"), 1);
  EXPECT_THAT(result.err, Not(HasSubstr("SIGPIPE")));
  job.await_nobody_left();
}

TEST(LauncherOutput, AFullDiskIsSaidAndTheJobGoesOn) { expect_that_a_full_disk_is_said(0, 1); }

TEST(LauncherOutput, AFullDiskDoesNotHideTheJobsOwnFailure) { expect_that_a_full_disk_is_said(5, 5); }

TEST(LauncherOutput, WithStderrOnAFullDiskTheExitCodeTells) {
  const auto fill_stderr = [] {
    if (dup2(open("/dev/full", O_WRONLY | O_CLOEXEC), 2) < 0) _exit(99);
  };
  const Result result = run_job(shells(1, "echo out; echo err >&2"), {.in_launcher = fill_stderr});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_EQ(result.out, "[0] out\n");
}

// A file that becomes full. The rank is subject to the same limit, but for it the signal stays deadly.
TEST(LauncherOutput, WhatFitsIsKept) {
  constexpr rlim_t limit = 4 << 20;
  const auto limit_stdout = [] {
    const rlimit set{limit, limit};
    const std::string file = std::string(getenv("FOLDER")) + "/out";
    if (setrlimit(RLIMIT_FSIZE, &set) != 0) _exit(99);
    if (dup2(open(file.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600), 1) < 0) _exit(99);
  };
  RunOptions options =
      shells(1, "head -c 5000000 /dev/zero; echo $? >&2; exec head -c 5000000 /dev/zero > $FOLDER/big");
  options.output.prefix = false;
  JobUnderTest job(options, {.in_launcher = limit_stdout});
  const Result result = job.finish();
  EXPECT_EQ(result.exit_code, 128 + SIGXFSZ);
  EXPECT_THAT(result.err, HasSubstr("cannot write to stdout: File too large; the ranks'"));
  EXPECT_THAT(result.err, HasSubstr("\n0\n"));
  EXPECT_EQ(std::filesystem::file_size(job.folder() / "out"), limit);
}

TEST(LauncherOutput, AReaderThatIsStuckDoesNotKeepTheJobFromEnding) {
  const auto nobody_reads = [] {
    static std::array<int, 2> ends{};
    if (pipe(ends.data()) != 0 || dup2(ends[1], 1) < 0) _exit(99);
  };
  RunOptions options = shells(2, "exec 9>$FOLDER/life; echo ready >&2; exec yes");
  options.stop_grace = std::chrono::milliseconds(100);
  JobUnderTest job(options, {.in_launcher = nobody_reads});
  job.await("ready", 2);
  job.send(SIGTERM);
  EXPECT_EQ(job.finish().exit_code, 128 + SIGTERM);
  job.await_nobody_left();
}

TEST(LauncherOutput, WorksWithItsOwnStandardDescriptorsClosed) {
  const auto close_all = [] {
    for (int fd = 0; fd < 3; ++fd) close(fd);
  };
  JobUnderTest job(shells(2, "echo $RANK > $FOLDER/said.$RANK; echo to nobody"), {.in_launcher = close_all});
  EXPECT_EQ(job.finish().exit_code, 0);
  EXPECT_TRUE(std::filesystem::exists(job.folder() / "said.1"));
}

}  // namespace
}  // namespace lockstep::launch
