#include "lockstep/launch/environment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::launch {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Key;
using ::testing::Not;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

TEST(Environment, TellsARankEverythingInThreeFamiliesOfNames) {
  const JobFacts facts{.ranks = 4,
                       .job = "cafe",
                       .store = "unix:@lockstep-0-cafe-0",
                       .master_port = 29501,
                       .host_name = "server1",
                       .control_fd = 7,
                       .secret_fd = 8,
                       .cores = 12,
                       .threads = 3,
                       .restarts = 1,
                       .max_restarts = 3};
  EXPECT_THAT(
      rank_variables(place_ranks({4})[2], facts),
      UnorderedElementsAre(
          Pair("RANK", "2"), Pair("WORLD_SIZE", "4"), Pair("LOCAL_RANK", "2"), Pair("LOCAL_WORLD_SIZE", "4"),
          Pair("GROUP_RANK", "0"), Pair("GROUP_WORLD_SIZE", "1"), Pair("ROLE_NAME", "default"),
          Pair("ROLE_RANK", "2"), Pair("ROLE_WORLD_SIZE", "4"), Pair("TORCHELASTIC_RESTART_COUNT", "1"),
          Pair("TORCHELASTIC_MAX_RESTARTS", "3"), Pair("MASTER_ADDR", "127.0.0.1"),
          Pair("MASTER_PORT", "29501"), Pair("HOROVOD_RANK", "2"), Pair("HOROVOD_SIZE", "4"),
          Pair("HOROVOD_LOCAL_RANK", "2"), Pair("HOROVOD_LOCAL_SIZE", "4"), Pair("HOROVOD_CROSS_RANK", "0"),
          Pair("HOROVOD_CROSS_SIZE", "1"), Pair("HOROVOD_HOSTNAME", "server1"), Pair("LOCKSTEP_JOB", "cafe"),
          Pair("LOCKSTEP_STORE", "unix:@lockstep-0-cafe-0"), Pair("LOCKSTEP_CONTROL_FD", "7"),
          Pair("LOCKSTEP_SECRET_FD", "8"), Pair("LOCKSTEP_CORES", "12"), Pair("OMP_NUM_THREADS", "3")));
}

TEST(Environment, LeavesTheUsersThreadsAlone) {
  EXPECT_THAT(rank_variables({}, {.threads = 0}), Not(Contains(Key("OMP_NUM_THREADS"))));
}

TEST(Environment, AsksPythonToShowWhereItCrashesUnlessTheUserSaysSomethingOfThat) {
  EXPECT_THAT(default_variables({"PATH=/bin"}, {{"PYTHONPATH", "/x"}}),
              ElementsAre(Pair("PYTHONFAULTHANDLER", "1")));
  EXPECT_THAT(default_variables({"PYTHONFAULTHANDLER="}, {}), IsEmpty());
  EXPECT_THAT(default_variables({}, {{"PYTHONFAULTHANDLER", ""}}), IsEmpty());
}

TEST(Environment, RanksFillHostAfterHost) {
  const std::vector<RankPlace> places = place_ranks({2, 1, 3});
  std::vector<std::string> texts;
  for (const RankPlace& place : places) {
    texts.push_back(std::to_string(place.rank) + ": " + std::to_string(place.local_rank) + "/" +
                    std::to_string(place.local_size) + " of host " + std::to_string(place.host) + ", cross " +
                    std::to_string(place.cross_rank) + "/" + std::to_string(place.cross_size));
  }
  EXPECT_THAT(texts, ElementsAre("0: 0/2 of host 0, cross 0/3", "1: 1/2 of host 0, cross 0/2",
                                 "2: 0/1 of host 1, cross 1/3", "3: 0/3 of host 2, cross 2/3",
                                 "4: 1/3 of host 2, cross 1/2", "5: 2/3 of host 2, cross 0/1"));
}

TEST(Environment, ReplacesWhatWasThere) {
  EXPECT_THAT(merge_environment({"HOME=/root", "RANK=9", "RANKS=a=b", "odd"}, {{"RANK", "1"}}),
              ElementsAre("HOME=/root", "RANKS=a=b", "odd", "RANK=1"));
}

TEST(VariablesForOthers, AreThoseThatAreNotOfThisHostOrRank) {
  EXPECT_THAT(
      variables_for_others({"PATH=/bin", "HOSTNAME=here", "PWD=/x", "SSH_CLIENT=1", "RANK=3",
                            "SLURM_PROCID=2", "SLURM_CPUS_PER_TASK=4", "OMP_NUM_THREADS=2",
                            "LOCKSTEP_SECRET_FD=5", "LOCKSTEP_TIMEOUT=5s", "odd", "=x"},
                           {{"OMP_NUM_THREADS", "1"}}),
      ElementsAre(Pair("PATH", "/bin"), Pair("SLURM_CPUS_PER_TASK", "4"), Pair("OMP_NUM_THREADS", "2"),
                  Pair("LOCKSTEP_TIMEOUT", "5s"), Pair("OMP_NUM_THREADS", "1")));
}

}  // namespace
}  // namespace lockstep::launch
