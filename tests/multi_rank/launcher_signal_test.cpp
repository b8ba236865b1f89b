// Signals to the launcher, also from a terminal.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <pty.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <utility>

#include "launcher_job.h"

namespace lockstep::launch {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// Each rank says `caught`, then does as `then`. (A shell that waits for a child would hear of the signal
// late.)
RunOptions catching(const std::string& signal, const std::string& then) {
  RunOptions options = shells(2, "exec 9>$FOLDER/life; trap 'echo caught " + signal + "; " + then + "' " +
                                     signal + "; echo ready; while :; do :; done");
  options.stop_grace = std::chrono::seconds(25);
  return options;
}

TEST(LauncherSignal, StopSignalsReachAllRanks) {
  for (const auto& [number, name] : {std::pair(SIGINT, "INT"), std::pair(SIGTERM, "TERM"),
                                     std::pair(SIGHUP, "HUP"), std::pair(SIGQUIT, "QUIT")}) {
    JobUnderTest job(catching(name, "exit 0"));
    job.await("ready", 2);
    job.send(number);
    const Result result = job.finish();
    EXPECT_EQ(count(result.out, std::string("caught ") + name + "\n"), 2) << result.out;
    EXPECT_EQ(result.exit_code, 0);
    job.await_nobody_left();
  }
}

TEST(LauncherSignal, AJobThatWasStoppedReturnsTheSignal) {
  JobUnderTest job(shells(2, "exec 9>$FOLDER/life; echo ready; exec sleep 1000"));
  job.await("ready", 2);
  job.send(SIGTERM);
  const Result result = job.finish();
  EXPECT_EQ(result.exit_code, 128 + SIGTERM);
  EXPECT_THAT(result.err, HasSubstr("lockstep run: ended by SIGTERM\n"));
  EXPECT_THAT(result.err, Not(HasSubstr("was killed by")));
  job.await_nobody_left();
}

TEST(LauncherSignal, UserSignalsGoToTheRanksAndTheJobGoesOn) {
  const std::string script =
      "trap 'echo one; n=1$n' USR1; trap 'echo two; n=2$n' USR2; echo ready; while [ ${#n} -lt 2 ]; do :; "
      "done; echo end";
  JobUnderTest job(shells(2, script));
  job.await("ready", 2);
  job.send(SIGUSR1);
  job.await("one", 2);
  job.send(SIGUSR2);
  job.await("two", 2);
  const Result result = job.finish();
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(count(result.out, "end"), 2);
}

// The child would handle SIGUSR1 before the SIGUSR2 that its parent sends it afterwards.
TEST(LauncherSignal, UserSignalsGoToTheRankAloneNotToItsFamily) {
  const std::string script =
      "sh -c 'trap \"echo child got one\" USR1; trap \"echo child got two; exit\" USR2; echo ready; while :; "
      "do :; done' &"
      "child=$!; trap 'kill -USR2 $child; wait $child; exit 0' USR1; echo ready; while :; do :; done";
  JobUnderTest job(shells(1, script));
  job.await("ready", 2);
  job.send(SIGUSR1);
  EXPECT_EQ(job.finish().out, "[0] ready\n[0] ready\n[0] child got two\n");
}

TEST(LauncherSignal, TheWholeJobStopsAndContinues) {
  JobUnderTest job(shells(2,
                          "trap 'echo stop' TSTP; trap 'echo continue; exit 0' CONT; echo ready;"
                          "while :; do :; done"));
  job.await("ready", 2);
  job.send(SIGTSTP);
  int status = 0;
  ASSERT_EQ(waitpid(job.pid(), &status, WUNTRACED), job.pid());
  EXPECT_TRUE(WIFSTOPPED(status));
  job.await("stop", 2);
  job.send(SIGCONT);
  EXPECT_EQ(count(job.finish().out, "continue"), 2);
}

TEST(LauncherSignal, RanksThatDoNotListenAreKilledAfterTheGrace) {
  RunOptions options = catching("TERM", ":");
  options.stop_grace = std::chrono::milliseconds(50);
  JobUnderTest job(options);
  job.await("ready", 2);
  job.send(SIGTERM);
  EXPECT_EQ(job.finish().exit_code, 128 + SIGTERM);
  job.await_nobody_left();
}

TEST(LauncherSignal, WithoutAnyGraceItStillSaysWhy) {
  RunOptions options = shells(2, "exec 9>$FOLDER/life; trap '' TERM; echo ready; exec sleep 1000");
  options.stop_grace = std::chrono::milliseconds(0);
  JobUnderTest job(options);
  job.await("ready", 2);
  job.send(SIGTERM);
  const Result result = job.finish();
  EXPECT_EQ(result.exit_code, 128 + SIGTERM);
  EXPECT_EQ(count(result.err, "lockstep run: ended by SIGTERM\n"), 1) << result.err;
  job.await_nobody_left();
}

TEST(LauncherSignal, ASecondInterruptEndsTheJobAtOnce) {
  RunOptions options = catching("INT", ":");
  options.stop_grace = std::chrono::hours(1);
  JobUnderTest job(options);
  job.await("ready", 2);
  job.send(SIGINT);
  job.await("caught INT", 2);
  bool ended = false;
  for (int press = 0; press < 1000 && !ended; ++press) {  // those within a tenth of a second are one
    job.send(SIGINT);
    ended = job.read_for(20);
  }
  ASSERT_TRUE(ended);
  const Result result = job.finish();
  EXPECT_EQ(result.exit_code, 128 + SIGINT);
  EXPECT_EQ(count(result.err, "lockstep run: ended by SIGINT\n"), 1) << result.err;
  job.await_nobody_left();
}

TEST(LauncherSignal, OneThatIsIgnoredAtTheStartStaysIgnored) {
  RunOptions options =
      shells(2, "trap 'echo still here; n=1' USR1; echo ready; while [ ${#n} -lt 1 ]; do :; done");
  options.stop_grace = std::chrono::milliseconds(0);
  JobUnderTest job(options, {.in_launcher = [] { (void)signal(SIGHUP, SIG_IGN); }});
  job.await("ready", 2);
  job.send(SIGHUP);
  job.send(SIGUSR1);
  const Result result = job.finish();
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(count(result.out, "still here"), 2);
}

// The process that runs the job, by what its ranks print.
constexpr const char* tell_parent = "exec 9>$FOLDER/life; echo parent=$PPID; ";
pid_t process_under(JobUnderTest& job) {
  job.await("parent=");
  return std::stoi(rest_of_line(job.seen(), "parent="));
}

char state_of(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  const std::size_t name_end = text.rfind(')');
  return name_end == std::string::npos ? '?' : text.at(name_end + 2);
}

TEST(LauncherSignal, AJobProcessThatIsStoppedEndsWhenToldTo) {
  for (const auto& [number, name] : {std::pair(SIGINT, "SIGINT"), std::pair(SIGTERM, "SIGTERM")}) {
    RunOptions options = shells(2, tell_parent + std::string("exec sleep 1000"));
    options.guard_grace = std::chrono::hours(1);
    JobUnderTest job(options);
    const pid_t under = process_under(job);
    job.await("parent=", 2);
    ASSERT_EQ(kill(under, SIGSTOP), 0);
    const Deadline deadline = Deadline::after(std::chrono::seconds(30));
    while (state_of(under) != 'T' && !deadline.expired()) sched_yield();
    job.send(number);
    const Result result = job.finish();
    if (HasFailure()) kill(under, SIGKILL);
    EXPECT_EQ(result.exit_code, 128 + number);
    EXPECT_THAT(result.err, HasSubstr("lockstep run: ended by " + std::string(name) + "\n"));
    job.await_nobody_left();
  }
}

// The rank stops it whenever it passes SIGTERM on, and nothing but the guard is left to act.
TEST(LauncherSignal, AJobProcessThatIsStuckIsKilledAfterTheGraces) {
  RunOptions options =
      shells(1, "trap 'kill -STOP $PPID' TERM; " + std::string(tell_parent) + "while :; do :; done");
  options.stop_grace = std::chrono::seconds(3);
  options.guard_grace = std::chrono::milliseconds(0);
  JobUnderTest job(options);
  const pid_t under = process_under(job);
  job.send(SIGTERM);
  const Result result = job.finish();
  if (HasFailure()) kill(under, SIGKILL);
  EXPECT_EQ(result.exit_code, 128 + SIGTERM);
  EXPECT_THAT(result.err, HasSubstr("lockstep run: the launcher did not end within 6 s of SIGTERM and was "
                                    "killed; all ranks have been ended\n"));
  job.await_nobody_left();
}

// A launcher in the foreground of a terminal of its own.
class LauncherTerminal : public ::testing::Test {
 protected:
  void start(const RunOptions& options) {
    int master = -1;
    int slave = -1;
    ASSERT_EQ(openpty(&master, &slave, nullptr, nullptr, nullptr), 0);
    terminal_.reset(master);
    const auto take_terminal = [slave] {
      if (setsid() < 0 || ioctl(slave, TIOCSCTTY, 0) != 0 || dup2(slave, 0) < 0) _exit(99);
      close(slave);
    };
    job_ = std::make_unique<JobUnderTest>(options, Surroundings{.in_launcher = take_terminal});
    close(slave);
  }
  void type(const std::string& text) {
    ASSERT_EQ(write(terminal_.get(), text.data(), text.size()), static_cast<ssize_t>(text.size()));
  }
  UniqueFd terminal_;
  std::unique_ptr<JobUnderTest> job_;
};

TEST_F(LauncherTerminal, RankZeroReadsWhatIsTyped) {
  start(shells(2,
               "if [ $RANK = 0 ]; then echo ready; fi; while read line; do echo typed: $line; done; echo end "
               "of input"));
  job_->await("ready");
  type("hello\n");
  job_->await("[0] typed: hello\n");
  type("\x04");
  const Result result = job_->finish();
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(count(result.out, "end of input"), 2);
}

TEST_F(LauncherTerminal, OneInterruptEndsTheJobAndReachesEachRankOnce) {
  start(catching("INT", "exit 0"));
  job_->await("ready", 2);
  type("\x03");
  const Result result = job_->finish();
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(count(result.out, "caught INT"), 2);
  job_->await_nobody_left();
}

}  // namespace
}  // namespace lockstep::launch
