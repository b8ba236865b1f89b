// The ways in which ranks come to know who they are, other than from `lockstep run` on one host.
#include <unistd.h>

#include "lockstep/base/socket.h"
#include "tests/support/job_test.h"

namespace lockstep::testing {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::SizeIs;

class Start : public JobTest {
 protected:
  Variables torchrun(int rank, int size, const Variables& more = {}) const {
    Variables variables = by_hand(rank, size,
                                  {{"LOCAL_RANK", std::to_string(rank)},
                                   {"LOCAL_WORLD_SIZE", std::to_string(size)},
                                   {"GROUP_RANK", "0"},
                                   {"TORCHELASTIC_RUN_ID", "none"},
                                   {"TORCHELASTIC_RESTART_COUNT", "0"},
                                   {"TORCHELASTIC_USE_AGENT_STORE", "True"}});
    variables.insert(variables.end(), more.begin(), more.end());
    return variables;
  }
  static void expect_done(std::vector<Process>& ranks) {
    const std::string size = std::to_string(ranks.size());
    for (const Ending& ending : finish(ranks)) {
      EXPECT_EQ(ending.exit_code, 0) << ending.err;
      EXPECT_THAT(ending.out, HasSubstr("of " + size + " done"));
      EXPECT_EQ(ending.err, "");
    }
  }
};

TEST_F(Start, ByHandNeedsFourVariables) {
  auto ranks = start_probes(3, {"everything"});
  expect_done(ranks);
}

TEST_F(Start, ByHandWithASecretMeetsOverTcp) {
  auto ranks = start_probes(2, {"everything"}, {{"LOCKSTEP_SECRET_FILE", secret_file("ours")}});
  expect_done(ranks);
}

TEST_F(Start, WhatTheLauncherHandedDownIsNotHandedOn) {
  for (const int size : {1, 2}) {
    const Ending ending = launch_probes(size, {"list_descriptors"});
    EXPECT_EQ(ending.exit_code, 0) << ending.err;
    EXPECT_THAT(ending.out, HasSubstr("open "));
    EXPECT_THAT(ending.out, ::testing::Not(HasSubstr("memfd:")))
        << "neither secret, nor page, nor shared memory";
  }
}

TEST_F(Start, ARankWhoseSocketNameIsTakenSaysByWhom) {
  const Endpoint name = Endpoint::unix_abstract("lockstep-" + std::to_string(::getuid()) + "-port-" +
                                                std::to_string(port()) + "-store");
  const Listener squatter = Listener::bind(name);
  auto ranks = start_probes(2, {"barrier"}, {{"LOCKSTEP_INIT_TIMEOUT", "1s"}});
  const auto endings = finish(ranks);
  EXPECT_THAT(endings[0].err,
              AllOf(HasSubstr("code=system"), HasSubstr(name.to_string() + " is already in use by"),
                    HasSubstr("process " + std::to_string(::getpid()))));
}

TEST_F(Start, ASecondInitReturnsTheSameWorld) {
  auto ranks = start_probes(2, {"init_again"});
  for (const Ending& ending : finish(ranks)) {
    EXPECT_EQ(ending.exit_code, 0) << ending.err;
    EXPECT_THAT(ending.out, HasSubstr("is in the same world"));
  }
}

TEST_F(Start, LocalhostIsThisHost) {
  auto ranks = start_probes(2, {"barrier"}, {{"MASTER_ADDR", "localhost"}});
  expect_done(ranks);
}

TEST_F(Start, ByExplicitOptionsNeedsNoEnvironment) {
  std::vector<Process> ranks;
  for (const char* rank : {"--rank=0", "--rank=1"}) {
    ranks.push_back(start({program("probe_rank"), rank, "--size=2", "--address=127.0.0.1",
                           "--port=" + std::to_string(port()), "everything"}));
  }
  expect_done(ranks);
}

TEST_F(Start, ExplicitOptionsWinOverTheEnvironment) {
  std::vector<Process> ranks;
  for (const char* rank : {"--rank=0", "--rank=1"}) {
    ranks.push_back(start({program("probe_rank"), rank, "--size=2", "barrier"}, torchrun(7, 9)));
  }
  expect_done(ranks);
}

TEST_F(Start, ArenasHaveTheSizeThatOptionsSay) {
  for (const char* size : {"--arena=65536", "--arena=99999999999999999"}) {
    std::vector<Process> ranks;
    for (int rank = 0; rank < 2; ++rank) {
      ranks.push_back(
          start({program("probe_rank"), size, "all_reduce,f32,1000,arena", "all_reduce,f32,100000,arena"},
                by_hand(rank, 2, {{"LOCKSTEP_ARENA_BYTES", "1M"}, {"LOCKSTEP_INIT_TIMEOUT", "5s"}})));
    }
    for (const Ending& ending : finish(ranks)) {
      EXPECT_EQ(ending.exit_code, 1);
      EXPECT_THAT(ending.err,
                  AnyOf(HasSubstr("the arena of 65536 bytes a rank has no room for 400000 more"),
                        HasSubstr("an arena of 99999999999999999 bytes is more than any machine has")))
          << size;
    }
  }
}

TEST_F(Start, HalfOfTheOptionsIsRefused) {
  Process rank = start({program("probe_rank"), "--rank=0", "barrier"});
  EXPECT_THAT(rank.finish().err, AllOf(HasSubstr("code=invalid_argument"), HasSubstr("WORLD_SIZE is not")));
}

TEST_F(Start, UnderTorchrunItsOwnStoreMayHoldThePort) {
  take_port();
  std::vector<Process> ranks;
  for (int rank = 0; rank < 2; ++rank) {
    ranks.push_back(start({program("probe_rank"), "everything"}, torchrun(rank, 2)));
  }
  expect_done(ranks);
}

TEST_F(Start, ARestartUnderTorchrunIsAnotherJob) {
  Process left_over = start({program("probe_rank"), "barrier"}, torchrun(0, 2));
  std::vector<Process> ranks;
  for (int rank = 0; rank < 2; ++rank) {
    ranks.push_back(
        start({program("probe_rank"), "barrier"}, torchrun(rank, 2, {{"TORCHELASTIC_RESTART_COUNT", "1"}})));
  }
  expect_done(ranks);
  left_over.send(SIGKILL);
  EXPECT_EQ(left_over.finish().exit_code, 128 + SIGKILL);
}

TEST_F(Start, TwoJobsOnOneHostDoNotMeet) {
  auto first = start_probes(2, {"0:say,ready", "0:read", "everything"});
  first[0].await("ready");
  auto second = start_probes(2, {"everything"}, {{"MASTER_PORT", std::to_string(another_port())}});
  expect_done(second);
  first[0].type("\n");
  expect_done(first);
}

TEST_F(Start, UnderTorchrunOnTwoHostsRanksMeetBesideItsPort) {
  REQUIRE_TWO_HOSTS();
  std::vector<Process> ranks;
  for (int rank = 0; rank < 2; ++rank) {
    const Variables elsewhere = {{"MASTER_ADDR", hosts().address(0)},
                                 {"LOCAL_RANK", "0"},
                                 {"LOCAL_WORLD_SIZE", "1"},
                                 {"LOCKSTEP_SECRET_FILE", secret_file("ours")}};
    ranks.push_back(
        start({program("probe_rank"), "everything"}, torchrun(rank, 2, elsewhere), hosts().network(rank)));
  }
  expect_done(ranks);
}

TEST_F(Start, ByTheLauncherChecksOut) {
  const Ending ending = launch_probes(4, {"everything"});
  EXPECT_EQ(ending.exit_code, 0) << ending.err;
  EXPECT_THAT(lines_with(ending.err, "["), SizeIs(0)) << ending.err;
}

TEST_F(Start, WhatRanksOfTheLauncherAreToldIsNoOtherJobs) {
  const Ending ending = launch_probes(2, {"everything"}, {{"MASTER_PORT", "1"}, {"RANK", "5"}});
  EXPECT_EQ(ending.exit_code, 0) << ending.err;
}

}  // namespace
}  // namespace lockstep::testing
