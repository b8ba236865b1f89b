// Ranks that call different things find out instead of waiting for each other: every rank's error names two
// ranks that differ, and what both called.
#include "tests/support/job_test.h"

namespace lockstep::testing {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::SizeIs;

struct Calls {
  const char* name;
  std::vector<std::string> actions;
  std::string one, other;  ///< what is said of the two calls
};

std::ostream& operator<<(std::ostream& out, const Calls& calls) { return out << calls.name; }

const Calls kinds[] = {
    {"Operations",
     {"barrier", "0:all_reduce,f32,100", "1:broadcast,400,0"},
     "rank 0 called all_reduce (sum of f32 x 100) as #1",
     "rank 1 called broadcast (400 bytes from rank 0) as #1"},
    {"Sizes",
     {"0:all_reduce,f32,100", "1:all_reduce,f32,101"},
     "rank 0 called all_reduce (sum of f32 x 100) as #0",
     "rank 1 called all_reduce (sum of f32 x 101) as #0"},
    {"LargeSizes",
     {"0:all_reduce,f32,1000000", "1:all_reduce,f32,1000001"},
     "rank 0 called all_reduce (sum of f32 x 1000000) as #0",
     "rank 1 called all_reduce (sum of f32 x 1000001) as #0"},
    {"ASmallAndALargeOne",
     {"0:all_reduce,f32,1", "1:all_reduce,f32,1000000,arena"},
     "rank 0 called all_reduce (sum of f32 x 1) as #0",
     "rank 1 called all_reduce (sum of f32 x 1000000) as #0"},
    {"LargeOnesInTheArena",
     {"0:all_reduce,f32,1000000,arena", "1:all_reduce,f32,999999,arena"},
     "rank 0 called all_reduce (sum of f32 x 1000000) as #0",
     "rank 1 called all_reduce (sum of f32 x 999999) as #0"},
    {"Dtypes",
     {"0:all_reduce,f32,100", "1:all_reduce,i32,100"},
     "rank 0 called all_reduce (sum of f32 x 100) as #0",
     "rank 1 called all_reduce (sum of i32 x 100) as #0"},
    {"ReduceOps",
     {"0:all_reduce,f32,100", "1:all_reduce_max,f32,100"},
     "rank 0 called all_reduce (sum of f32 x 100) as #0",
     "rank 1 called all_reduce (max of f32 x 100) as #0"},
    {"Roots",
     {"0:broadcast,1000,0", "1:broadcast,1000,1", "barrier"},
     "rank 0 called broadcast (1000 bytes from rank 0) as #0",
     "rank 1 called broadcast (1000 bytes from rank 1) as #0"},
    {"RootsOfLargeBroadcasts",
     {"0:broadcast,64000000,0", "1:broadcast,64000000,1"},
     "rank 0 called broadcast (64000000 bytes from rank 0) as #0",
     "rank 1 called broadcast (64000000 bytes from rank 1) as #0"},
    {"Gathers",
     {"0:all_gather,100000", "1:all_gather,100008"},
     "rank 0 called all_gather (100000 bytes) as #0",
     "rank 1 called all_gather (100008 bytes) as #0"},
    {"Orders",
     {"0:barrier", "all_reduce,f32,100000", "1:barrier"},
     "rank 0 called barrier as #0",
     "rank 1 called all_reduce (sum of f32 x 100000) as #0"},
    {"BlocksThatOnlyTheReceiverTakesForEmpty",
     {"0:all_to_all_v,8-16,8-8", "1:all_to_all_v,8-8,0-8", "barrier"},
     "rank 1 called all_to_all_v as #0, rank 0 called all_to_all_v as #0",
     "rank 0 sends 16 bytes to rank 1, which expects 0"},
    {"BlocksThatOnlyTheSenderTakesForEmpty",
     {"barrier", "0:all_to_all_v,8-8,8-8", "1:all_to_all_v,0-8,8-8", "barrier"},
     "rank 0 called all_to_all_v as #1, rank 1 called all_to_all_v as #1",
     "rank 1 sends 0 bytes to rank 0, which expects 8"},
    {"Messages", {"0:send,1000,1", "1:recv,1001,0", "barrier"}, "send (1000 bytes)", "(1001 bytes)"},
};

class Mismatch : public JobTest, public ::testing::WithParamInterface<Calls> {
 protected:
  void expect_both_named(const Ending& ending) const {
    EXPECT_EQ(ending.exit_code, 1);
    const auto errors = lines_with(ending.err, "probe rank=");
    EXPECT_THAT(errors, SizeIs(1)) << ending.err;
    EXPECT_THAT(errors, Each(AllOf(HasSubstr("code=mismatch"), HasSubstr(GetParam().one),
                                   HasSubstr(GetParam().other), HasSubstr("make all ranks call the same"))));
  }
};

TEST_P(Mismatch, IsNamedByBothRanks) {
  auto ranks = start_probes(2, GetParam().actions);
  for (const Ending& ending : finish(ranks)) expect_both_named(ending);
}

TEST_P(Mismatch, IsNamedByBothRanksOnTwoHosts) {
  REQUIRE_TWO_HOSTS();
  auto ranks = start_probes_on_two_hosts(2, GetParam().actions);
  for (const Ending& ending : finish(ranks)) expect_both_named(ending);
}

INSTANTIATE_TEST_SUITE_P(Of, Mismatch, ::testing::ValuesIn(kinds),
                         [](const auto& info) { return info.param.name; });

class MismatchOfMessages : public JobTest {};

TEST_F(MismatchOfMessages, RanksThatAllReceiveFirstAreAllNamed) {
  auto ranks = start_probes(3, {"0:recv,10,2", "1:recv,10,0", "2:recv,10,1"}, {{"LOCKSTEP_TIMEOUT", "2s"}});
  for (const Ending& ending : finish(ranks)) {
    EXPECT_EQ(ending.exit_code, 1);
    EXPECT_THAT(ending.err, AllOf(HasSubstr("code=timeout peer=none"),
                                  HasSubstr("ranks 0, 1, 2 waited for each other, 2 s long"),
                                  HasSubstr("all receive first")));
  }
}

TEST_F(MismatchOfMessages, WhoOnlyWaitsForOneOfThemIsNotNamedWithThem) {
  auto ranks = start_probes(3, {"0:recv,10,1", "1:recv,10,2", "2:recv,10,1"}, {{"LOCKSTEP_TIMEOUT", "2s"}});
  for (const Ending& ending : finish(ranks)) {
    EXPECT_EQ(ending.exit_code, 1);
    EXPECT_THAT(ending.err, AllOf(HasSubstr("code=timeout"), HasSubstr("ranks 1, 2 ")));
  }
}

class MismatchOfMany : public JobTest {};

TEST_F(MismatchOfMany, AllRanksNameTheSameTwo) {
  const Ending ending = launch_probes(4, {"!2:all_reduce,f32,5000", "2:all_reduce,f32,5001"});
  EXPECT_EQ(ending.exit_code, 1);
  std::string first_cause;
  for (const char* rank : {"[0]", "[1]", "[2]", "[3]"}) {
    const auto lines = lines_with(ending.err, rank);
    ASSERT_THAT(lines, SizeIs(1)) << ending.err;
    const auto begin = lines.front().find("ranks called different operations");
    ASSERT_NE(begin, std::string::npos) << lines.front();
    const std::string cause = lines.front().substr(begin);
    if (first_cause.empty()) first_cause = cause;
    EXPECT_EQ(cause, first_cause);
  }
  EXPECT_THAT(first_cause, AllOf(HasSubstr("rank 2 called all_reduce (sum of f32 x 5001) as #0"),
                                 HasSubstr(" called all_reduce (sum of f32 x 5000) as #0")));
  EXPECT_THAT(ending.err, HasSubstr("first cause, found by rank "));
}

TEST_F(MismatchOfMany, TheGroupStaysClosed) {
  auto ranks = start_probes(
      2, {"--go-on", "0:all_reduce,f32,100", "1:all_reduce,f32,200", "barrier", "broadcast,8,0"});
  for (const Ending& ending : finish(ranks)) {
    const auto errors = lines_with(ending.err, "probe rank=");
    EXPECT_THAT(errors, SizeIs(3));
    EXPECT_THAT(errors,
                Each(AllOf(HasSubstr("code=mismatch"), HasSubstr("f32 x 100"), HasSubstr("f32 x 200"))));
  }
}

}  // namespace
}  // namespace lockstep::testing
