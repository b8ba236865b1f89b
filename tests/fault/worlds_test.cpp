// One world after another in the same processes: init() again after the last Group of a world is gone, or after shutdown().
#include <sys/wait.h>

#include "tests/support/job_test.h"

namespace lockstep::testing {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;

class Worlds : public JobTest {
 protected:
  /// Of a rank that has done its part in each of `worlds`.
  static void expect_done(const Ending& ending, int rank, int size, std::size_t worlds) {
    EXPECT_EQ(ending.exit_code, 0) << ending.err;
    const std::string done = "probe rank=" + std::to_string(rank) + " of " + std::to_string(size) + " done";
    EXPECT_THAT(lines_with(ending.out, done), SizeIs(worlds)) << ending.out << ending.err;
  }
  void expect_done(std::vector<Process>& ranks, std::size_t worlds) {
    const auto endings = finish(ranks);
    for (std::size_t rank = 0; rank < endings.size(); ++rank)
      expect_done(endings[rank], static_cast<int>(rank), static_cast<int>(endings.size()), worlds);
  }
  static const std::vector<std::string>& three_worlds() {
    static const std::vector<std::string> actions = {
        "all_reduce,f32,1000", "next_world", "subgroup,0-1", "within,0-1,all_reduce,f32,100000", "shutdown",
        "all_reduce,f32,10",   "barrier"};
    return actions;
  }
};

TEST_F(Worlds, AreJoinedOneAfterAnother) {
  auto ranks = start_probes(2, three_worlds());
  expect_done(ranks, 3);
}

TEST_F(Worlds, AreJoinedOneAfterAnotherByOneRank) {
  const Ending ending =
      start({program("probe_rank"), "barrier", "next_world", "barrier", "shutdown", "barrier"}).finish();
  expect_done(ending, 0, 1, 3);
}

TEST_F(Worlds, AreJoinedOneAfterAnotherUnderALauncher) {
  const Ending ending = launch_probes(2, three_worlds());
  EXPECT_EQ(ending.exit_code, 0) << ending.err;
  EXPECT_THAT(lines_with(ending.out, "[1] probe rank=1 of 2 done"), SizeIs(3)) << ending.out;
}

TEST_F(Worlds, AreJoinedOneAfterAnotherOnTwoHosts) {
  REQUIRE_TWO_HOSTS();
  auto ranks = start_probes_on_two_hosts(
      4, {"everything", "next_world", "all_reduce,f32,100000", "shutdown", "everything"});
  expect_done(ranks, 3);
}

TEST_F(Worlds, AreJoinedOneAfterAnotherUnderTorchrun) {
  std::vector<Process> ranks;
  for (int rank = 0; rank < 2; ++rank) {
    ranks.push_back(start({program("probe_rank"), "barrier", "next_world", "barrier"},
                          by_hand(rank, 2, {{"TORCHELASTIC_RUN_ID", "job"}, {"LOCAL_WORLD_SIZE", "2"}})));
  }
  expect_done(ranks, 2);
}

TEST_F(Worlds, AreCountedInTheNamesOfGroups) {
  auto ranks = start_probes(2, {"subgroup_of_itself", "next_world", "subgroup_of_itself"});
  EXPECT_THAT(finish(ranks)[1].out, AllOf(HasSubstr("probe rank=1 world/1 of 1 has 3"),
                                          HasSubstr("probe rank=1 world#2/1 of 1 has 3")));
}

TEST_F(Worlds, DoNotSeeWhyAnEarlierOneFailed) {
  auto ranks = start_probes(
      2, {"--go-on", "0:all_reduce,f32,10", "1:all_reduce,f32,11", "next_world", "all_reduce,f32,10"});
  for (const Ending& ending : finish(ranks)) {
    EXPECT_THAT(lines_with(ending.err, "probe rank"), SizeIs(1)) << ending.err;
    EXPECT_THAT(ending.err, HasSubstr("code=mismatch"));
    EXPECT_THAT(ending.out, HasSubstr("of 2 done\nprobe")) << "the second world";
  }
}

TEST_F(Worlds, HaveVerdictsOfTheirOwn) {
  const std::vector<std::string> failed = {"--go-on", "0:all_reduce,f32,10", "1:all_reduce,f32,11",
                                           "next_world", "barrier"};
  auto well = failed, badly = failed;
  well.insert(well.end(), {"return,0"});
  badly.insert(badly.end(), {"1:_exit,7", "barrier"});
  const Ending none = launch_probes(2, well);
  EXPECT_EQ(none.exit_code, 0) << none.err;
  const Ending seven = launch_probes(2, badly);
  EXPECT_EQ(seven.exit_code, 7) << seven.err;
  const std::string verdict = seven.err.substr(seven.err.rfind("lockstep run"));
  EXPECT_THAT(verdict,
              AllOf(HasSubstr("rank 1"), HasSubstr("exit code 7"), Not(HasSubstr("found by rank 1"))))
      << seven.err;
}

TEST_F(Worlds, AreInTheFlightRecord) {
  const std::filesystem::path records = folder() / "records";
  const Ending ending = launch_probes(2, {"barrier", "next_world", "barrier", "1:raise,9", "barrier"},
                                      {{"LOCKSTEP_RECORD_DIR", records.string()}});
  EXPECT_EQ(ending.exit_code, 137) << ending.err;
  std::string record;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(records)) {
    if (entry.is_regular_file()) record += text_in(entry.path());
  }
  EXPECT_THAT(record, AllOf(HasSubstr("\"world\""), HasSubstr("\"world#2\""))) << ending.err;
}

TEST_F(Worlds, TellARankThatComesToAnEarlierOne) {
  auto ranks = start_probes(2, {"next_world", "barrier", "say,here", "read"});
  for (Process& rank : ranks) rank.await("here");
  const Ending late = start({program("probe_rank"), "barrier"}, by_hand(1, 2)).finish();
  EXPECT_EQ(late.exit_code, 1);
  EXPECT_THAT(late.err, AllOf(HasSubstr("code=mismatch"), HasSubstr("rank 1 comes to world 1 of the job at "),
                              HasSubstr(", whose ranks are in world 2: "),
                              HasSubstr("was this process started again")));
  for (Process& rank : ranks) rank.type("\n");
  expect_done(ranks, 2);
}

TEST_F(Worlds, ThatOneRankDoesNotComeToEndInTime) {
  auto ranks = start_probes(2, {"1:return,0", "next_world", "barrier"}, {{"LOCKSTEP_INIT_TIMEOUT", "1s"}});
  const auto endings = finish(ranks);
  EXPECT_EQ(endings[0].exit_code, 1);
  EXPECT_THAT(endings[0].err, AllOf(HasSubstr("code=timeout"), HasSubstr("waited in vain for rank 1 of 2")))
      << endings[0].err;
}

TEST_F(Worlds, ThatWereShutDownRefuseCalls) {
  auto ranks = start_probes(2, {"--go-on", "subgroup,0-1", "shut_down_here", "all_reduce,f32,10",
                                "within,0-1,barrier", "subgroup,1-0", "next_world", "barrier", "return,0"});
  for (const Ending& ending : finish(ranks)) {
    EXPECT_EQ(ending.exit_code, 0);
    const auto lines = lines_with(ending.err, "probe rank");
    EXPECT_THAT(lines,
                AllOf(SizeIs(3), Each(AllOf(HasSubstr("code=aborted"),
                                            HasSubstr("lockstep::shutdown() was called in this process")))))
        << ending.err;
  }
}

TEST_F(Worlds, ThatAreShutDownEndCallsOfOtherThreads) {
  auto ranks = start_probes(
      2, {"--go-on", "0:barrier_while_shut_down", "1:read", "next_world", "barrier", "return,0"});
  ranks[0].await_err("code=aborted");
  ranks[1].type("\n");
  const auto endings = finish(ranks);
  EXPECT_EQ(endings[0].exit_code, 0);
  EXPECT_EQ(endings[1].exit_code, 0);
  EXPECT_THAT(endings[0].err,
              AllOf(HasSubstr("code=aborted"), HasSubstr("lockstep::shutdown() was called in this process")));
}

TEST_F(Worlds, ThatARankShutsDownNameItToTheOthers) {
  auto ranks =
      start_probes(2, {"--go-on", "1:shut_down_here", "0:barrier", "next_world", "barrier", "return,0"});
  const auto endings = finish(ranks);
  EXPECT_THAT(endings[0].err, AllOf(HasSubstr("code=peer_lost"),
                                    HasSubstr("rank 1 left the job while others still needed it")));
  for (const Ending& ending : endings) EXPECT_EQ(ending.exit_code, 0) << ending.err;
}

TEST_F(Worlds, AreShutDownWhenTheyHaveBeenJoined) {
  auto ranks = start_probes(2, {"shutdown_during_init", "next_world", "barrier"});
  expect_done(ranks, 2);
}

}  // namespace
}  // namespace lockstep::testing
