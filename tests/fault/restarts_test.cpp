// `lockstep run --max-restarts`: a job that fails starts again, whole, until it has failed too often.
#include <csignal>

#include "tests/support/ssh_job_test.h"

namespace lockstep::testing {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

/// Says which start this is; rank 1 ends with 3 in those before number `good`.
std::vector<std::string> flaky(int good) {
  return {"/bin/sh", "-c",
          "echo start $TORCHELASTIC_RESTART_COUNT of $TORCHELASTIC_MAX_RESTARTS; [ $RANK = 0 ] || "
          "[ $TORCHELASTIC_RESTART_COUNT -ge " +
              std::to_string(good) + " ] || exit 3"};
}

class Restarts : public SshJobTest {
 protected:
  Process launch(std::vector<std::string> options, const std::vector<std::string>& command,
                 Variables variables = {}, int network = -1) const {
    options.insert(options.begin(), {program("lockstep"), "run"});
    options.insert(options.end(), command.begin(), command.end());
    return start(options, std::move(variables), network);
  }
};

TEST_F(Restarts, StartAllRanksAgainUntilTheyEndWell) {
  const Ending ending = launch({"-np", "2", "--max-restarts", "3"}, flaky(2)).finish();
  EXPECT_EQ(ending.exit_code, 0) << ending.err;
  for (const char* rank : {"[0] ", "[1] "}) {
    EXPECT_EQ(lines_with(ending.out, rank), (std::vector<std::string>{std::string(rank) + "start 0 of 3",
                                                                      std::string(rank) + "start 1 of 3",
                                                                      std::string(rank) + "start 2 of 3"}));
  }
  EXPECT_THAT(lines_with(ending.err, "lockstep run: rank 1 (pid "), SizeIs(2)) << ending.err;
  EXPECT_THAT(ending.err,
              AllOf(HasSubstr("lockstep run: all ranks start again, restart 1 of 3 (--max-restarts)\n"),
                    HasSubstr("restart 2 of 3"), Not(HasSubstr("restart 3 of 3"))));
}

TEST_F(Restarts, GiveUpWithWhatFailedFirst) {
  const std::string script =
      "[ $RANK = 0 ] && exit 0; [ $TORCHELASTIC_RESTART_COUNT = 0 ] && kill -SEGV $$; exit 4";
  const Ending ending = launch({"-np", "2", "--max-restarts", "1"}, {"/bin/sh", "-c", script}).finish();
  EXPECT_EQ(ending.exit_code, 4);
  EXPECT_THAT(ending.err,
              ContainsRegex("lockstep run: given up after 1 restart; what failed first of all: rank 1 "
                            "\\(pid [0-9]+\\) was killed by signal 11 \\(SIGSEGV"));
}

TEST_F(Restarts, AreNoneAfterCtrlC) {
  Process job = launch({"-np", "2", "--max-restarts", "3"}, {"/bin/sh", "-c", "echo ready; exec sleep 60"});
  job.await("[0] ready");
  job.await("[1] ready");
  job.send(SIGINT);
  const Ending ending = job.finish();
  EXPECT_EQ(ending.exit_code, 130);
  EXPECT_THAT(ending.err, Not(HasSubstr("start again")));
}

TEST_F(Restarts, AreNoneOfAProgramThatIsNotThere) {
  const Ending ending = launch({"-np", "2", "--max-restarts", "3"}, {"/no/program"}).finish();
  EXPECT_EQ(ending.exit_code, 127);
  EXPECT_THAT(ending.err, Not(HasSubstr("start again")));
}

TEST_F(Restarts, NeedANumber) {
  const Ending ending = launch({"-np", "2", "--max-restarts", "often"}, {"true"}).finish();
  EXPECT_EQ(ending.exit_code, 2);
  EXPECT_THAT(ending.err, HasSubstr("--max-restarts=\"often\" is not a whole number"));
}

TEST_F(Restarts, JoinAgainAfterAKill) {
  const std::string script = "[ $TORCHELASTIC_RESTART_COUNT = 0 ] && exec " + program("probe_rank") +
                             " barrier 1:raise,9 all_reduce,f32,300000; exec " + program("probe_rank") +
                             " everything";
  const Ending ending = launch({"-np", "3", "--max-restarts", "1"}, {"/bin/sh", "-c", script}).finish();
  EXPECT_EQ(ending.exit_code, 0) << ending.err;
  EXPECT_THAT(ending.out, ContainsRegex("\\[2\\] .*checked [0-9]{3} calls"));
}

class RestartsOnHosts : public Restarts {
 protected:
  Process launch_on_both(std::vector<std::string> options, const std::vector<std::string>& command) const {
    options.insert(options.begin(), {"-H", list(1)});
    return launch(options, command, {{"LOCKSTEP_SSH", servers().client()}}, hosts().network(0));
  }
};

TEST_F(RestartsOnHosts, GoOnWithNewAgents) {
  REQUIRE_SSH_HOSTS(2);
  const Ending ending = launch_on_both({"--max-restarts", "2"}, flaky(1)).finish();
  EXPECT_EQ(ending.exit_code, 0) << ending.err;
  EXPECT_THAT(ending.out, AllOf(HasSubstr("[0] start 1 of 2"), HasSubstr("[1] start 1 of 2")));
}

// The network to a host is cut, and its agent has not noticed: the ranks that it looks after must not meet their successors.
TEST_F(RestartsOnHosts, EndTheRanksBeforeWhereverTheyStillAre) {
  REQUIRE_SSH_HOSTS(2);
  const std::string script =
      "echo start $TORCHELASTIC_RESTART_COUNT; [ $TORCHELASTIC_RESTART_COUNT = 0 ] && exec sleep 86399";
  Process job = launch_on_both({"--max-restarts", "1"}, {"/bin/sh", "-c", script + "; true"});
  job.await("[0] start 0");
  job.await("[1] start 0");
  const auto agents = agents_of(1);
  ASSERT_THAT(agents, SizeIs(2));
  for (const pid_t agent : agents) ASSERT_EQ(::kill(agent, SIGSTOP), 0);
  const auto shells = processes_with_words(0, {"ssh", hosts().address(1)});
  for (const pid_t shell : shells) (void)::kill(shell, SIGKILL);
  const Ending ending = job.finish();
  EXPECT_THAT(processes_with_words(1, {"sleep", "86399"}), IsEmpty()) << "before the agent goes on";
  for (const pid_t agent : agents) (void)::kill(agent, SIGCONT);
  EXPECT_EQ(ending.exit_code, 0) << ending.err;
  EXPECT_THAT(ending.err,
              ContainsRegex("rank 1 \\(pid [0-9]+\\): its host " + hosts().address(1) + " was lost"));
  EXPECT_THAT(ending.out, AllOf(HasSubstr("[0] start 1"), HasSubstr("[1] start 1")));
}

}  // namespace
}  // namespace lockstep::testing
