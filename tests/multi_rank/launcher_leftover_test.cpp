// Nothing of a job survives it, whoever is killed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include "launcher_job.h"

namespace lockstep::launch {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// A child in the background, one in a session of its own, and an orphan.
constexpr const char* start_helpers =
    "exec 9>$FOLDER/life; sleep 1000 & setsid sleep 1000 & (setsid sh -c 'sleep 1000 & exit' &) ; ";

RunOptions with_helpers(const std::string& then) {
  RunOptions options = shells(2, start_helpers + then);
  options.leftover_grace = std::chrono::milliseconds(20);
  return options;
}

TEST(LauncherLeftover, WhatRanksLeaveBehindIsEnded) {
  JobUnderTest job(with_helpers("exit 0"));
  const Result result = job.finish();
  job.await_nobody_left();
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.err, HasSubstr(" processes that the ranks had left behind\n"));
}

TEST(LauncherLeftover, WhatEndsByItselfSoonAfterIsNotDisturbed) {
  RunOptions options = shells(1, "(while kill -0 $$ 2>/dev/null; do :; done; echo the last word) & exit 0");
  options.leftover_grace = std::chrono::seconds(25);
  const Result result = run_job(options);
  EXPECT_EQ(result.out, "[0] the last word\n");
  EXPECT_THAT(result.err, Not(HasSubstr("left behind")));
}

TEST(LauncherLeftover, NothingSurvivesAFailure) {
  RunOptions options = with_helpers("[ $RANK = 1 ] && exit 3; exec sleep 1000");
  options.report_grace = std::chrono::milliseconds(50);
  JobUnderTest job(options);
  EXPECT_EQ(job.finish().exit_code, 3);
  job.await_nobody_left();
}

TEST(LauncherLeftover, NothingSurvivesTheKilledLauncher) {
  JobUnderTest job(with_helpers("echo ready; exec sleep 1000"));
  job.await("ready", 2);
  job.send(SIGKILL);
  job.await_nobody_left();
  EXPECT_EQ(job.finish().exit_code, -SIGKILL);
}

TEST(LauncherLeftover, NothingSurvivesTheKilledProcessUnderIt) {
  JobUnderTest job(with_helpers("echo parent=$PPID.; echo ready; exec sleep 1000"));
  job.await("ready", 2);
  job.await("parent=", 2);
  const std::string parent = rest_of_line(job.seen(), "parent=");
  ASSERT_EQ(kill(std::stoi(parent), SIGKILL), 0);
  const Result result = job.finish();
  EXPECT_EQ(result.exit_code, 128 + SIGKILL);
  EXPECT_THAT(result.err,
              HasSubstr("the launcher was killed by signal 9 (SIGKILL); all ranks have been ended\n"));
  job.await_nobody_left();
}

TEST(LauncherLeftover, NothingSurvivesTheKilledLauncherWhoseOtherProcessWasStopped) {
  JobUnderTest job(with_helpers("echo parent=$PPID.; echo ready; exec sleep 1000"));
  job.await("ready", 2);
  job.await("parent=", 2);
  ASSERT_EQ(kill(std::stoi(rest_of_line(job.seen(), "parent=")), SIGSTOP), 0);
  job.send(SIGKILL);
  job.await_nobody_left();
  EXPECT_EQ(job.finish().exit_code, -SIGKILL);
}

TEST(LauncherLeftover, RanksDieWithBoth) {
  JobUnderTest job(shells(2, "exec 9>$FOLDER/life; echo parent=$PPID.; exec sleep 1000"));
  job.await("parent=", 2);
  ASSERT_EQ(kill(job.pid(), SIGSTOP), 0);  // so that it cannot clean up
  ASSERT_EQ(kill(std::stoi(rest_of_line(job.seen(), "parent=")), SIGKILL), 0);
  job.await_nobody_left();
  job.send(SIGKILL);
  job.finish();
}

}  // namespace
}  // namespace lockstep::launch
