// Launchers that are started on each host by the user, as torchrun's are (`lockstep run --nnodes`), and meet with a secret.
#include <csignal>
#include <filesystem>
#include <fstream>
#include <thread>

#include "tests/support/job_test.h"

namespace lockstep::testing {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

class Nodes : public JobTest {
 protected:
  Process launch(std::vector<std::string> options, const std::vector<std::string>& command, int network = -1,
                 const std::string& secret = "0123456789abcdef") const {
    options.insert(options.begin(), {program("lockstep"), "run"});
    options.insert(options.end(), command.begin(), command.end());
    Variables variables;
    if (!secret.empty()) variables.emplace_back("LOCKSTEP_SECRET_FILE", secret_file(secret));
    return start(options, variables, network);
  }
  /// One of `nnodes` launchers on this host.
  Process launch_here(const std::string& nnodes, const std::string& ranks,
                      const std::vector<std::string>& command,
                      const std::vector<std::string>& more = {}) const {
    std::vector<std::string> options = {"--nnodes",         nnodes,
                                        "--nproc-per-node", ranks,
                                        "--rdzv-endpoint",  "localhost:" + std::to_string(port())};
    options.insert(options.end(), more.begin(), more.end());
    return launch(options, command);
  }
  static std::vector<std::string> shell(const std::string& script) { return {"/bin/sh", "-c", script}; }
  std::vector<std::string> probe(std::vector<std::string> actions) const {
    actions.insert(actions.begin(), program("probe_rank"));
    return actions;
  }
};

TEST_F(Nodes, OfTwoHostsAreOneWorldAndEachShowsItsOwnRanks) {
  REQUIRE_TWO_HOSTS();
  const auto launch_on = [&](int host) {
    return launch({"--nnodes=2", "--nproc_per_node=2", "--node_rank=" + std::to_string(host),
                   "--master_addr=" + hosts().address(0), "--master_port=" + std::to_string(port())},
                  probe({"everything"}), hosts().network(host));
  };
  Process second = launch_on(1);
  const Ending first_end = launch_on(0).finish(), second_end = second.finish();
  EXPECT_EQ(first_end.exit_code, 0) << first_end.err;
  EXPECT_EQ(second_end.exit_code, 0) << second_end.err;
  for (const auto& [out, ranks] : {std::pair(first_end.out, std::vector{0, 1}), {second_end.out, {2, 3}}}) {
    for (int rank = 0; rank < 4; ++rank) {
      const bool is_here = std::ranges::find(ranks, rank) != ranks.end();
      const auto said = ContainsRegex("\\[" + std::to_string(rank) + "\\] .*checked [0-9]{3} calls");
      if (is_here) {
        EXPECT_THAT(out, said);
      } else {
        EXPECT_THAT(out, Not(said));
      }
    }
  }
}

TEST_F(Nodes, WhoseCountsDifferAreNamed) {
  Process one = launch_here("2", "1", {"true"});
  const Ending other = launch_here("3", "1", {"true"}).finish(), ending = one.finish();
  EXPECT_NE(ending.exit_code, 0);
  EXPECT_NE(other.exit_code, 0);
  EXPECT_THAT(
      ending.err + other.err,
      ContainsRegex("was started with --nnodes [23]:[23], and the launcher that leads with [23]:[23]: "
                    "all need the same"));
}

TEST_F(Nodes, OfOneMachineJoinToo) {
  Process one = launch_here("2", "2", probe({"everything"}));
  const Ending other = launch_here("2", "1", probe({"everything"})).finish();
  const Ending ending = one.finish();
  EXPECT_EQ(ending.exit_code, 0) << ending.err;
  EXPECT_EQ(other.exit_code, 0) << other.err;
  EXPECT_THAT(ending.out + other.out, ContainsRegex("\\[2\\] .*checked [0-9]{3} calls"));
}

TEST_F(Nodes, HaveEachItsOwnProgramFolderAndVariables) {
  const std::string say =
      "echo $RANK/$WORLD_SIZE node $GROUP_RANK/$GROUP_WORLD_SIZE local $LOCAL_RANK $WORD $PWD";
  Process one =
      launch_here("2", "1", shell(say + " first"), {"--node-rank", "1", "-x", "WORD=a b", "--wdir", "/usr"});
  const Ending leader = launch_here("2", "2", shell(say), {"--node-rank", "0"}).finish();
  const Ending follower = one.finish();
  EXPECT_EQ(follower.exit_code, 0) << follower.err;
  EXPECT_EQ(follower.out, "[2] 2/3 node 1/2 local 0 a b /usr first\n");
  EXPECT_THAT(leader.out,
              AllOf(HasSubstr("[0] 0/3 node 0/2 local 0 "), HasSubstr("[1] 1/3 node 0/2 local 1 ")));
}

TEST_F(Nodes, AllSayWhoFailedAndEndWithItsCode) {
  Process one = launch_here("2", "1", shell("[ $RANK = 0 ] || { echo oh no >&2; exit 6; }; sleep 60"));
  const Ending other =
      launch_here("2", "1", shell("[ $RANK = 0 ] || { echo oh no >&2; exit 6; }; sleep 60")).finish();
  for (const Ending& ending : {one.finish(), other}) {
    EXPECT_EQ(ending.exit_code, 6) << ending.err;
    EXPECT_THAT(ending.err,
                AllOf(ContainsRegex("lockstep run: rank 1 \\(pid [0-9]+\\) ended with exit code 6\n"),
                      HasSubstr("    oh no\n")));
  }
}

TEST_F(Nodes, StartAgainTogether) {
  const auto command = shell(
      "echo start $TORCHELASTIC_RESTART_COUNT; [ $RANK = 0 ] || [ $TORCHELASTIC_RESTART_COUNT = 1 ] || exit "
      "3");
  Process one = launch_here("2", "1", command, {"--max-restarts", "2", "--node-rank", "1"});
  const Ending leader = launch_here("2", "1", command, {"--max-restarts", "2", "--node-rank", "0"}).finish();
  const Ending follower = one.finish();
  EXPECT_EQ(leader.exit_code, 0) << leader.err;
  EXPECT_EQ(follower.exit_code, 0) << follower.err;
  EXPECT_EQ(leader.out, "[0] start 0\n[0] start 1\n");
  EXPECT_EQ(follower.out, "[1] start 0\n[1] start 1\n");
  EXPECT_THAT(follower.err, HasSubstr("all ranks start again, restart 1 of 2"));
}

TEST_F(Nodes, BeginWithAsManyAsHaveCome) {
  const Ending alone =
      launch_here("1:3", "2", shell("echo of $WORLD_SIZE"), {"--rdzv-conf", "last_call_timeout=0.3"})
          .finish();
  EXPECT_EQ(alone.exit_code, 0) << alone.err;
  EXPECT_THAT(lines_with(alone.out, ""), ::testing::UnorderedElementsAre("[0] of 2", "[1] of 2"));
}

TEST_F(Nodes, ThatDoNotComeAreMissedInTime) {
  const Ending leader =
      launch_here("2", "1", {"true"}, {"--start-timeout", "300ms", "--node-rank", "0"}).finish();
  EXPECT_EQ(leader.exit_code, 1);
  EXPECT_THAT(leader.err, AllOf(HasSubstr("1 of 2 hosts came to tcp:localhost:" + std::to_string(port())),
                                HasSubstr("within 300 ms (--start-timeout)"),
                                HasSubstr("--node-rank 0, if it is given, is one host's alone")));
  const Ending follower =
      launch_here("2", "1", {"true"}, {"--start-timeout", "300ms", "--node-rank", "1"}).finish();
  EXPECT_EQ(follower.exit_code, 1);
  EXPECT_THAT(follower.err, HasSubstr("no launcher leads at tcp:localhost:" + std::to_string(port()) +
                                      " within 300 ms (--start-timeout)"));
}

TEST_F(Nodes, WithAnotherSecretOrRunAreTurnedAway) {
  Process leader =
      launch_here("2", "1", {"true"}, {"--start-timeout", "3s", "--node-rank", "0", "--rdzv-id", "a"});
  const auto come = [&](const std::string& id, const std::string& secret) {
    return launch({"--nnodes", "2", "--node-rank", "1", "--rdzv-endpoint",
                   "localhost:" + std::to_string(port()), "--rdzv-id", id},
                  {"true"}, -1, secret)
        .finish();
  };
  for (const auto& [id, secret] :
       {std::pair<std::string, std::string>("a", "another secret of 24"), {"b", "0123456789abcdef"}}) {
    const Ending ending = come(id, secret);
    EXPECT_EQ(ending.exit_code, 1) << ending.err;
    EXPECT_THAT(ending.err,
                AllOf(HasSubstr("wrong secret"), HasSubstr("the same LOCKSTEP_SECRET_FILE and --rdzv-id")));
  }
  EXPECT_EQ(leader.finish().exit_code, 1);
}

TEST_F(Nodes, OfOneNumberAreTwiceAndOneIsTurnedAway) {
  Process leader = launch_here("3", "1", shell("sleep 60"), {"--start-timeout", "3s", "--node-rank", "0"});
  Process one = launch_here("3", "1", shell("sleep 60"), {"--node-rank", "1"});
  Process other = launch_here("3", "1", shell("sleep 60"), {"--node-rank", "1"});
  leader.finish();
  const std::string said = one.finish().err + other.finish().err;
  EXPECT_THAT(said, HasSubstr("turned away"));
  EXPECT_THAT(said, HasSubstr("2 of 3 hosts came to"));
}

TEST_F(Nodes, EndWithALauncherThatIsKilled) {
  const auto command = shell("echo here; exec sleep 60");
  for (const bool leader_dies : {true, false}) {
    Process leader = launch_here("2", "1", command, {"--node-rank", "0"});
    Process follower = launch_here("2", "1", command, {"--node-rank", "1"});
    leader.await("[0] here");
    follower.await("[1] here");
    (leader_dies ? leader : follower).send(SIGKILL);
    const Ending of_leader = leader.finish(), of_follower = follower.finish();
    const Ending& left = leader_dies ? of_follower : of_leader;
    EXPECT_EQ(left.exit_code, 1) << left.err;
    EXPECT_THAT(left.err, leader_dies ? HasSubstr("the launcher that leads, at tcp:localhost:")
                                      : HasSubstr("its launcher has ended, or the network to it is cut"));
  }
}

TEST_F(Nodes, EndWithCtrlCAtEither) {
  const auto command = shell("echo here; exec sleep 60");
  for (const bool at_leader : {true, false}) {
    Process leader = launch_here("2", "1", command, {"--node-rank", "0"});
    Process follower = launch_here("2", "1", command, {"--node-rank", "1"});
    leader.await("[0] here");
    follower.await("[1] here");
    (at_leader ? leader : follower).send(SIGINT);
    EXPECT_EQ(leader.finish().exit_code, 130);
    EXPECT_EQ(follower.finish().exit_code, 130);
  }
}

TEST_F(Nodes, StopWaitingAtCtrlC) {
  for (const char* rank : {"0", "1"}) {
    Process alone = launch_here("2", "1", {"true"}, {"--node-rank", rank});
    std::this_thread::sleep_for(std::chrono::milliseconds(300));  // it may wait by then; else it ends before
    alone.send(SIGINT);
    EXPECT_EQ(alone.finish().exit_code, 130);
  }
}

TEST_F(Nodes, WhoseProgramIsNotThereAreNamedToAll) {
  Process one = launch_here("2", "1", {"/no/program"}, {"--node-rank", "1"});
  const Ending leader = launch_here("2", "1", {"true"}, {"--node-rank", "0"}).finish();
  const Ending follower = one.finish();
  for (const Ending& ending : {leader, follower}) {
    EXPECT_EQ(ending.exit_code, 127) << ending.err;
    EXPECT_THAT(ending.err, AllOf(HasSubstr("1 of 2 hosts cannot take part:"), HasSubstr("/no/program")));
  }
}

TEST_F(Nodes, WrongUsageStartsNothing) {
  const std::string endpoint = "localhost:" + std::to_string(port());
  struct Wrong {
    std::vector<std::string> options;
    std::string text;
  };
  const Wrong all[] = {
      {{"--nnodes", "2"}, "pass --rdzv-endpoint HOST[:PORT], or --master-addr HOST"},
      {{"--nnodes", "2:1", "--rdzv-endpoint", endpoint}, "--nnodes=2:1 has more at least than at most"},
      {{"--nnodes", "1:2:3", "--rdzv-endpoint", endpoint}, "is neither N nor MIN:MAX"},
      {{"--nnodes", "0", "--rdzv-endpoint", endpoint}, "--nnodes=\"0\" is not a whole number"},
      {{"--nnodes", "2", "--node-rank", "2", "--rdzv-endpoint", endpoint},
       "--node-rank=\"2\" is not a whole number"},
      {{"--nnodes", "2", "--rdzv-backend", "etcd", "--rdzv-endpoint", endpoint},
       "--rdzv-backend etcd: launchers meet at"},
      {{"--nnodes", "2", "--rdzv-conf", "color=red", "--rdzv-endpoint", endpoint},
       "--rdzv-conf \"color=red\" is none of"},
      {{"--nnodes", "2", "--rdzv-conf", "is_host=perhaps", "--rdzv-endpoint", endpoint},
       "neither true nor false"},
      {{"--nnodes", "2", "-H", "a:1", "--rdzv-endpoint", endpoint},
       "--nnodes and -H or --hostfile are two ways"},
      {{"--nnodes", "2", "-np", "4", "--rdzv-endpoint", endpoint}, "by --nproc-per-node how many ranks"},
      {{"--nnodes", "2", "--standalone", "--rdzv-endpoint", endpoint}, "exclude one another"},
      {{"--nnodes", "2", "--rdzv-endpoint", "localhost:seven"}, "seven"},
  };
  for (const Wrong& wrong : all) {
    const Ending ending = launch(wrong.options, {"true"}).finish();
    EXPECT_EQ(ending.exit_code, 2) << wrong.text;
    EXPECT_THAT(ending.err, HasSubstr(wrong.text));
  }
  const Ending no_secret = launch({"--nnodes", "2", "--rdzv-endpoint", endpoint}, {"true"}, -1, "").finish();
  EXPECT_EQ(no_secret.exit_code, 2);
  EXPECT_THAT(no_secret.err, HasSubstr("set LOCKSTEP_SECRET_FILE to it; or start from one host by ssh: -H"));
}

}  // namespace
}  // namespace lockstep::testing
