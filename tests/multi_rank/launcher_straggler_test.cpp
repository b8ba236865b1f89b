// Some ranks have ended with 0 and one is left: it works on, or it was stopped.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <fstream>

#include "launcher_job.h"
#include "lockstep/base/process_status.h"

namespace lockstep::launch {
namespace {

using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;

/// Rank 0 ends at once; the others do as `script` says.
RunOptions left_by_rank_0(int ranks, const std::string& script) {
  RunOptions options = shells(ranks, "[ $RANK = 0 ] && exit 0; exec 9>$FOLDER/life; " + script);
  options.stragglers = {.is_stopped = milliseconds(20), .between_looks = milliseconds(5)};
  return options;
}

pid_t pid_in_file(const JobUnderTest& job) {
  std::ifstream file(job.folder() / "pid");
  pid_t pid = 0;
  file >> pid;
  return pid;
}

TEST(LauncherStraggler, OneThatIsStoppedIsNamedAndEndedAtTheDeadline) {
  auto options = left_by_rank_0(3, "[ $RANK = 2 ] && exit 0; echo last words >&2; kill -STOP $$");
  options.stragglers.given_up = milliseconds(200);
  JobUnderTest job(options);
  const Result result = job.finish();
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(
      rest_of_line(result.err, "lockstep run: rank 1 (pid "),
      MatchesRegex("[0-9]+\\) has been stopped \\(as by SIGSTOP\\) for .* s, and ranks? 0.* with exit "
                   "code 0; `kill -CONT [0-9]+` lets it go on; after 0.2 s \\(LOCKSTEP_TIMEOUT\\) it "
                   "is ended"));
  EXPECT_THAT(
      result.err.substr(result.err.rfind("lockstep run: ")),
      MatchesRegex("lockstep run: rank 1 \\(pid [0-9]+\\) was stopped \\(as by SIGSTOP\\) for .* s after "
                   "others had ended with exit code 0, and was ended\n"
                   "  its last lines on stderr:\n    last words\n  ranks 0, 2: exit code 0\n"));
  job.await_nobody_left();
}

TEST(LauncherStraggler, OneThatIsStoppedMayGoOn) {
  JobUnderTest job(left_by_rank_0(2, "echo $$ > $FOLDER/pid; kill -STOP $$; echo goes on"));
  job.await("has been stopped");
  const pid_t pid = pid_in_file(job);
  ASSERT_GT(pid, 0);
  EXPECT_THAT(job.seen(), HasSubstr("`kill -CONT " + std::to_string(pid) + "` lets it go on"));
  EXPECT_EQ(kill(pid, SIGCONT), 0);
  const Result result = job.finish();
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.out, "[1] goes on\n");
  EXPECT_THAT(result.err, Not(HasSubstr("was stopped")));
}

/// What the shell has started is what joined the job, and it is stopped; the shell only waits for it.
TEST(LauncherStraggler, OneThatIsStoppedInsideOfAShellIsNamed) {
  RunOptions options = roles(2);
  options.command = {"/bin/sh", "-c", "\"$0\"; exit $?", options.command.front()};
  options.stragglers = {
      .is_stopped = milliseconds(20), .given_up = milliseconds(200), .between_looks = milliseconds(5)};
  const Result result = run_job(options, {.variables = {{"LOCKSTEP_TEST_ROLE", "stops_when_left"}}});
  EXPECT_EQ(result.exit_code, 1);
  const std::string pid = rest_of_line(result.out, "[1] stops ");
  EXPECT_THAT(result.err, AllOf(HasSubstr("lockstep run: rank 1 (pid " + pid + ") has been stopped"),
                                HasSubstr("`kill -CONT " + pid + "`")));
}

TEST(LauncherStraggler, OneThatWorksOnIsNamedAndLeftAlone) {
  auto options = left_by_rank_0(2, "while ! [ -e $FOLDER/enough ]; do :; done; echo done");
  options.stragglers.runs_on = milliseconds(20);
  options.stragglers.given_up = milliseconds(1);
  JobUnderTest job(options);
  job.await(" s after rank 0 has ended with exit code 0");
  EXPECT_THAT(job.seen(), HasSubstr("lockstep run: rank 1 still runs, "));
  std::ofstream(job.folder() / "enough") << "";
  const Result result = job.finish();
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.out, "[1] done\n");
  EXPECT_EQ(count(result.err, "still run"), 1);
}

TEST(LauncherStraggler, NobodyIsNamedAsLongAsNoneHasEnded) {
  auto options = shells(2, "exec 9>$FOLDER/life; kill -STOP $$");
  options.stop_grace = milliseconds(50);
  options.stragglers = {.runs_on = milliseconds(1),
                        .is_stopped = milliseconds(1),
                        .given_up = milliseconds(1),
                        .between_looks = milliseconds(1)};
  JobUnderTest job(options);
  EXPECT_FALSE(job.read_for(100));
  EXPECT_THAT(job.seen(), Not(HasSubstr("stopped")));
  job.send(SIGTERM);
  EXPECT_EQ(job.finish().exit_code, 128 + SIGTERM);
}

void await_stopped(pid_t pid) {
  const Deadline deadline = Deadline::after(std::chrono::seconds(30));
  while (base::read_status(pid).state != 'T') ASSERT_FALSE(deadline.expired()) << "process " << pid;
}

TEST(LauncherStraggler, NobodyIsNamedWhileTheUserHasStoppedTheJob) {
  auto options =
      left_by_rank_0(2, "echo $$ > $FOLDER/pid; echo ready; while ! [ -e $FOLDER/enough ]; do :; done");
  options.stragglers.given_up = milliseconds(1);
  JobUnderTest job(options);
  job.await("ready");
  job.send(SIGTSTP);
  await_stopped(pid_in_file(job));
  EXPECT_FALSE(job.read_for(100));
  job.send(SIGCONT);
  std::ofstream(job.folder() / "enough") << "";
  const Result result = job.finish();
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.err, Not(HasSubstr("stopped")));
}

}  // namespace
}  // namespace lockstep::launch
