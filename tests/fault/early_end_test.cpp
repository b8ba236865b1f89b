// A rank that ends while others need it, however it ends: the others name it and the operation, and the
// launcher names it and says how it ended.
#include "tests/support/job_test.h"

namespace lockstep::testing {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;

struct End {
  const char* name;
  std::string action;
  int exit_code;              ///< of rank 1
  int job_exit_code;          ///< of the launcher
  std::string others_say;     ///< a regular expression
  std::string launcher_says;  ///< one, too
};

std::ostream& operator<<(std::ostream& out, const End& end) { return out << end.name; }

const End ends[] = {
    {"ThrowsInTheMiddleOfACall", "throw,100000", 4, 4,
     "rank 1 gave up all_reduce #2: an exception there ended it early",
     "rank 1 \\(pid [0-9]+\\) ended with exit code 4"},
    {"ThrowsBetweenCalls", "throw_between", 4, 4,
     "rank 1 left the job while others still needed it|exit code 4",
     "rank 1 \\(pid [0-9]+\\) ended with exit code 4"},
    {"ReturnsEarly", "return,0", 0, 1, "rank 1 left the job while others still needed it",
     "rank 1 \\(pid [0-9]+\\) ended with exit code 0 while others still needed it"},
    {"Exits", "exit,0", 0, 1, "rank 1( \\(pid [0-9]+\\))? died",
     "rank 1 \\(pid [0-9]+\\) ended with exit code 0 while others still needed it"},
    {"ExitsWithoutCleaningUp", "_exit,7", 7, 7, "rank 1( \\(pid [0-9]+\\))? (died|ended with exit code 7)",
     "rank 1 \\(pid [0-9]+\\) ended with exit code 7"},
    {"IsKilled", "raise,9", 137, 137, "rank 1( \\(pid [0-9]+\\))? (died|was killed by signal 9)",
     "rank 1 \\(pid [0-9]+\\) was killed by signal 9 \\(SIGKILL\\)"},
    {"Crashes", "raise,6", 134, 134, "rank 1( \\(pid [0-9]+\\))? (died|was killed by signal 6)",
     "rank 1 \\(pid [0-9]+\\) was killed by signal 6 \\(SIGABRT"},
};

class EarlyEnd : public JobTest, public ::testing::WithParamInterface<End> {
 protected:
  static std::vector<std::string> actions() {
    std::vector<std::string> all = {"barrier", "all_reduce,f32,1000", "1:" + GetParam().action};
    // With all others there, rank 1's part of the call may be over before it throws.
    if (GetParam().action.starts_with("throw,")) all.emplace_back("2:await_end,1");
    all.emplace_back("all_reduce,f32,100000");
    return all;
  }
  // Word of a failure may overtake what the call before it still had on its way to another host.
  static auto is_blamed_on_rank_1() {
    return AllOf(HasSubstr("code=peer_lost peer=1"),
                 ContainsRegex("all_reduce #(2 \\(sum of f32 x 100000|1 \\(sum of f32 x 1000)\\)"),
                 ContainsRegex(GetParam().others_say), HasSubstr("start again from the last checkpoint"));
  }
  void expect_blame(const std::vector<Ending>& endings) const {
    EXPECT_EQ(endings[1].exit_code, GetParam().exit_code);
    EXPECT_THAT(endings[1].err, Not(HasSubstr("code=")));
    for (const std::size_t survivor : {std::size_t{0}, std::size_t{2}}) {
      EXPECT_EQ(endings[survivor].exit_code, 1);
      EXPECT_THAT(lines_with(endings[survivor].err, ""), SizeIs(1));
      EXPECT_THAT(endings[survivor].err, is_blamed_on_rank_1());
    }
  }
};

TEST_P(EarlyEnd, IsBlamedByAllOthers) {
  auto ranks = start_probes(3, actions());
  expect_blame(finish(ranks));
}

TEST_P(EarlyEnd, IsBlamedByAllOthersOnTwoHosts) {
  REQUIRE_TWO_HOSTS();
  auto ranks = start_probes_on_two_hosts(3, actions());
  expect_blame(finish(ranks));
}

TEST_P(EarlyEnd, IsNamedByTheLauncher) {
  const Ending ending = launch_probes(3, actions());
  EXPECT_EQ(ending.exit_code, GetParam().job_exit_code) << ending.err;
  for (const char* survivor : {"[0]", "[2]"}) {
    EXPECT_THAT(lines_with(ending.err, survivor), AllOf(SizeIs(1), Each(is_blamed_on_rank_1())))
        << ending.err;
  }
  const auto summary = lines_with(ending.err, "lockstep run: rank");
  EXPECT_THAT(summary, AllOf(SizeIs(1), Each(ContainsRegex(GetParam().launcher_says)))) << ending.err;
}

INSTANTIATE_TEST_SUITE_P(OfARankThat, EarlyEnd, ::testing::ValuesIn(ends),
                         [](const auto& info) { return info.param.name; });

class NeverComes : public JobTest {
 protected:
  /// Of three ranks that run `script`, in which $PROBE is probe_rank.
  Ending launch_shell(const std::string& script, const std::string& init_timeout = "60s") const {
    return start({program("lockstep"), "run", "-np", "3", "sh", "-c", script},
                 {{"PROBE", program("probe_rank")}, {"LOCKSTEP_INIT_TIMEOUT", init_timeout}})
        .finish();
  }
};

TEST_F(NeverComes, ARankThatEndsWith0BeforeInitIsNamedAtOnce) {
  const Ending ending = launch_shell("[ $RANK != 1 ] || exit 0; exec $PROBE barrier");
  EXPECT_EQ(ending.exit_code, 1) << ending.err;
  for (const char* survivor : {"[0]", "[2]"}) {
    EXPECT_THAT(
        lines_with(ending.err, survivor),
        AllOf(SizeIs(1), Each(AllOf(HasSubstr("code=peer_lost peer=1"),
                                    ContainsRegex("rank 1 \\(pid [0-9]+\\) ended with exit code 0 before "
                                                  "it had come to init\\(\\)")))))
        << ending.err;
  }
  EXPECT_THAT(lines_with(ending.err, "lockstep run: rank"),
              ElementsAre(ContainsRegex("rank 1 .*ended with exit code 0 while others still needed it")))
      << ending.err;
}

TEST_F(NeverComes, AlsoToTheNextWorld) {
  const Ending ending = launch_shell("[ $RANK = 1 ] || more='shutdown barrier'; exec $PROBE barrier $more");
  EXPECT_EQ(ending.exit_code, 1) << ending.err;
  EXPECT_THAT(lines_with(ending.err, "[2]"),
              AllOf(SizeIs(1), Each(HasSubstr("does not come to the job's world 2, where the others wait"))))
      << ending.err;
  EXPECT_THAT(lines_with(ending.err, "lockstep run: rank"),
              ElementsAre(ContainsRegex("rank 1 .*ended with exit code 0 while others still needed it")))
      << ending.err;
}

TEST_F(NeverComes, ARankThatIsStoppedBeforeInitIsNamedAsSuch) {
  const Ending ending = launch_shell("[ $RANK != 1 ] || kill -STOP $$; exec $PROBE barrier", "1s");
  EXPECT_EQ(ending.exit_code, 1) << ending.err;
  EXPECT_THAT(
      ending.err,
      AllOf(ContainsRegex("lockstep run: rank 1 \\(pid [0-9]+\\) was stopped \\(as by SIGSTOP\\) "
                          "while others waited for it until a time-out, and was ended by the launcher\n"),
            ContainsRegex("first cause, found by rank [02]: .*waited in vain for rank 1 of 3"),
            HasSubstr("  ranks 0, 2: exit code 1\n")));
}

class LateEnd : public JobTest {};

TEST_F(LateEnd, OfARankThatNobodyNeedsAnyMoreHarmsNobody) {
  const Ending ending = launch_probes(
      3, {"barrier", "1:return,0", "0:send,100,2", "2:recv,100,0", "0:send,100,2", "2:recv,100,0"});
  EXPECT_EQ(ending.exit_code, 0) << ending.err;
}

TEST_F(LateEnd, RightAfterTheStartHarmsNobody) {
  // It takes luck for rank 0 to be gone before the others are through.
  for (int times = 0; times < 10; ++times) {
    auto ranks = start_probes(4, {});
    EXPECT_THAT(finish(ranks), Each(::testing::Field("exit_code", &Ending::exit_code, 0)));
  }
}

TEST_F(LateEnd, TheMessageOfWhoLeftRightAfterSendingArrives) {
  auto ranks = start_probes(2, {"0:send,100000,1", "1:recv,100000,0"});
  for (const Ending& ending : finish(ranks)) EXPECT_EQ(ending.exit_code, 0) << ending.err;
}

class OtherGroup : public JobTest {};

TEST_F(OtherGroup, WhoDiedThereIsBlamedAndNotWhoLeftBecauseOfIt) {
  auto ranks = start_probes(3, {"barrier", "2:raise,9", "0:subgroup,0-2", "1:read", "1:barrier"});
  EXPECT_EQ(ranks[2].finish().exit_code, 128 + SIGKILL);
  EXPECT_THAT(ranks[0].finish().err, AllOf(HasSubstr("code=peer_lost peer=2"),
                                           HasSubstr("making group \"world/0,2\": rank 2 ended before")));
  ranks[1].type("\n");
  EXPECT_THAT(ranks[1].finish().err, AllOf(HasSubstr("code=peer_lost peer=2"), HasSubstr("barrier #1")));
}

TEST_F(OtherGroup, WhoDiedIsBlamedAndNotTheStoresHostThatLeftBecauseOfIt) {
  auto ranks = start_probes(3, {"barrier", "2:raise,9", "1:read", "1:subgroup,1-2", "0:barrier"});
  EXPECT_EQ(ranks[2].finish().exit_code, 128 + SIGKILL);
  EXPECT_THAT(ranks[0].finish().err, AllOf(HasSubstr("code=peer_lost peer=2"), HasSubstr("barrier #1")));
  ranks[1].type("\n");
  EXPECT_THAT(ranks[1].finish().err, AllOf(HasSubstr("code=peer_lost peer=2"),
                                           ContainsRegex("making group \"world/1,2\": rank 2 .*died")));
}

TEST_F(OtherGroup, WhoDiedIsBlamedOnTwoHostsToo) {
  REQUIRE_TWO_HOSTS();
  auto ranks = start_probes_on_two_hosts(
      4, {"barrier", "3:raise,9", "1:read", "1:subgroup,1-3", "2:read", "2:subgroup,2-3", "0:barrier"});
  EXPECT_EQ(ranks[3].finish().exit_code, 128 + SIGKILL);
  EXPECT_THAT(ranks[0].finish().err, HasSubstr("code=peer_lost peer=3"));
  for (const auto rank : {1U, 2U}) {
    ranks[rank].type("\n");
    EXPECT_THAT(ranks[rank].finish().err, AllOf(HasSubstr("code=peer_lost peer=3"),
                                                HasSubstr("making group \"world/" + std::to_string(rank))));
  }
}

// 0 waits for 2, which waits for 1, which waits for 3, each in another group; on two hosts from one to the other each time. Whoever
// is blamed through others gives up before them.
TEST_F(OtherGroup, WhoIsMissingAtTheEndOfAChainThroughGroupsIsNamed) {
  for (const bool on_two_hosts : {false, true}) {
    if (on_two_hosts) REQUIRE_TWO_HOSTS();
    const std::vector<std::string> actions = {"0:subgroup,0-2",
                                              "2:subgroup,0-2",
                                              "1:subgroup,1-2",
                                              "2:subgroup,1-2",
                                              "1:subgroup,1-3",
                                              "3:subgroup,1-3",
                                              "barrier",
                                              "3:read",
                                              "0:within,0-2,recv,10,1",
                                              "2:sleep,200",
                                              "2:within,1-2,recv,10,0",
                                              "1:sleep,400",
                                              "1:within,1-3,recv,10,1"};
    const Variables patience = {{"LOCKSTEP_TIMEOUT", "3s"}};
    auto ranks =
        on_two_hosts ? start_probes_on_two_hosts(4, actions, patience) : start_probes(4, actions, patience);
    for (const auto& [rank, waits] :
         {std::pair(0, "rank 2, waiting in another group for rank 3,"), std::pair(1, "rank 3"),
          std::pair(2, "rank 1, waiting in another group for rank 3,")}) {
      const Ending ending = ranks[static_cast<std::size_t>(rank)].finish();
      EXPECT_EQ(ending.exit_code, 1);
      EXPECT_THAT(ending.err, AllOf(HasSubstr("code=timeout peer=3"),
                                    HasSubstr(std::string(waits) + " did not arrive within 3 s")));
    }
    ranks[3].type("\n");
    (void)ranks[3].finish();
  }
}

TEST_F(OtherGroup, TheStoresHostIsBlamedIfItDiedItself) {
  auto ranks =
      start_probes(3, {"barrier", "0:raise,9", "1:read", "1:subgroup,1-2", "2:read", "2:subgroup,1-2"});
  EXPECT_EQ(ranks[0].finish().exit_code, 128 + SIGKILL);
  for (const auto rank : {1U, 2U}) {
    ranks[rank].type("\n");
    EXPECT_THAT(ranks[rank].finish().err,
                AllOf(HasSubstr("code=peer_lost peer=0"), HasSubstr("making group")));
  }
}

// Its own part of it is done; the others have work there yet.
TEST_F(OtherGroup, MayBeDroppedSoonerByARankThatHasDoneItsPart) {
  const std::vector<std::string> actions = {"subgroup,0-1-2",
                                            "1:within,0-1-2,send,10,0",
                                            "1:drop,0-1-2",
                                            "2:sleep,1000",
                                            "2:within,0-1-2,send,10,0",
                                            "0:within,0-1-2,recv,10,2",
                                            "0:within,0-1-2,recv,10,1",
                                            "barrier"};
  auto ranks = start_probes(3, actions);
  for (const Ending& ending : finish(ranks)) EXPECT_EQ(ending.exit_code, 0) << ending.err;
  // Of whom two ranks wait for a message from any is not one that has sent its.
  auto takers = start_probes(
      3, {"subgroup,0-1-2", "1:within,0-1-2,send,10,0", "1:drop,0-1-2", "2:sleep,1000",
          "2:within,0-1-2,send,10,0", "0:within,0-1-2,recv,10,-1", "0:within,0-1-2,recv,10,-1", "barrier"});
  for (const Ending& ending : finish(takers)) EXPECT_EQ(ending.exit_code, 0) << ending.err;
  REQUIRE_TWO_HOSTS();
  auto far = start_probes_on_two_hosts(3, actions);
  for (const Ending& ending : finish(far)) EXPECT_EQ(ending.exit_code, 0) << ending.err;
}

class Fork : public JobTest {};

TEST_F(Fork, TheChildsUseIsRefusedAndTheParentGoesOn) {
  auto ranks = start_probes(2, {"barrier", "fork", "all_reduce,f32,100000", "barrier"});
  for (const Ending& ending : finish(ranks)) {
    EXPECT_EQ(ending.exit_code, 0) << ending.err;
    EXPECT_THAT(ending.out, AllOf(HasSubstr("child ended with 1"), HasSubstr("of 2 done")));
    const auto lines = lines_with(ending.err, "");
    EXPECT_THAT(lines, ElementsAre(HasSubstr("allocate in a process"), HasSubstr("barrier in a process")));
    EXPECT_THAT(lines,
                Each(AllOf(HasSubstr("code=invalid_argument"), HasSubstr("forked after lockstep::init()"),
                           HasSubstr("fork before init()"))));
  }
}

TEST_F(Fork, OnTwoHostsToo) {
  REQUIRE_TWO_HOSTS();
  auto ranks = start_probes_on_two_hosts(2, {"barrier", "fork", "all_reduce,f32,100000", "barrier"});
  for (const Ending& ending : finish(ranks)) {
    EXPECT_EQ(ending.exit_code, 0) << ending.err;
    EXPECT_THAT(ending.out, AllOf(HasSubstr("child ended with 1"), HasSubstr("of 2 done")));
  }
}

TEST_F(Fork, ADeadParentIsNoticedAlthoughItsChildLives) {
  auto ranks = start_probes(2, {"barrier", "0:fork_and_die", "1:all_reduce,f32,1000"});
  EXPECT_THAT(ranks[1].finish().err, HasSubstr("code=peer_lost peer=0"));
  EXPECT_EQ(ranks[0].finish().exit_code, 128 + SIGKILL);
}

TEST_F(Fork, ADeadParentOnAnotherHostIsNoticedAlthoughItsChildLives) {
  REQUIRE_TWO_HOSTS();
  auto ranks = start_probes_on_two_hosts(2, {"barrier", "0:fork_and_die", "1:all_reduce,f32,1000"});
  EXPECT_THAT(ranks[1].finish().err, HasSubstr("code=peer_lost peer=0"));
  EXPECT_EQ(ranks[0].finish().exit_code, 128 + SIGKILL);
}

}  // namespace
}  // namespace lockstep::testing
