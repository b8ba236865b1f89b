// The examples that need no libtorch: every line that they print, and ranks that fail before they join.
#include <signal.h>

#include "example_test.h"

namespace lockstep::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class CoreExamples : public ExampleTest {};

TEST_F(CoreExamples, HelloRanksAddUpTheirNumbers) {
  const Ending ending = launch({program("01_hello_ranks")}).finish();
  EXPECT_EQ(ending.exit_code, 0) << ending.err;
  for (const std::string rank : {"0", "1"}) {
    EXPECT_THAT(lines_with(ending.out, "[" + rank + "] "),
                ElementsAre("[" + rank + "] rank " + rank + " of 2, local rank " + rank +
                            " of 2 on this host; the sum of all ranks' numbers is 3"));
  }
}

TEST_F(CoreExamples, TheTourOfCollectivesHasALineForEachStepOnEachRank) {
  const Ending ending = launch({program("collectives_tour")}).finish();
  EXPECT_EQ(ending.exit_code, 0) << ending.err;
  EXPECT_THAT(lines_with(ending.out, "[0] "),
              ElementsAre("[0] send, recv: the token is 2", "[0] isend, irecv: rank 1 sent 1 10",
                          "[0] group: ranks 0 1 have the sum 3", "[0] broadcast: 7 8 9", "[0] reduce: 1 201",
                          "[0] all_reduce: 1 201", "[0] scatter: 0 1", "[0] gather: 0 100 1 101",
                          "[0] all_gather: 0 100 1 101"));
  EXPECT_THAT(lines_with(ending.out, "[1] "),
              ElementsAre("[1] send, recv: the token is 2", "[1] isend, irecv: rank 0 sent 0 0",
                          "[1] group: ranks 0 1 have the sum 3", "[1] broadcast: 7 8 9",
                          "[1] reduce: the root has it", "[1] all_reduce: 1 201", "[1] scatter: 2 3",
                          "[1] gather: the root has it", "[1] all_gather: 0 100 1 101"));
}

TEST_F(CoreExamples, TheTourLeavesRanksOutsideOfAGroupAlone) {
  const Ending ending = start({program("lockstep"), "run", "-np", "3", program("collectives_tour")}).finish();
  EXPECT_EQ(ending.exit_code, 0) << ending.err;
  EXPECT_THAT(lines_with(ending.out, "[2] "),
              ElementsAre("[2] send, recv: the token is 3", "[2] isend, irecv: rank 1 sent 1 10",
                          "[2] group: not a member of ranks 0 1", "[2] broadcast: 7 8 9",
                          "[2] reduce: the root has it", "[2] all_reduce: 3 303", "[2] scatter: 4 5",
                          "[2] gather: the root has it", "[2] all_gather: 0 100 1 101 2 102"));
}

TEST_F(CoreExamples, TheTourIsForOneRankToo) {
  const Ending ending = start({program("collectives_tour")}).finish();
  EXPECT_EQ(ending.exit_code, 0) << ending.err;
  EXPECT_THAT(lines_with(ending.out, ""),
              ElementsAre("send, recv: the token is 1", "isend, irecv: rank 0 sent 0 0",
                          "group: ranks 0 have the sum 1", "broadcast: 7 8 9", "reduce: 0 100",
                          "all_reduce: 0 100", "scatter: 0 1", "gather: 0 100", "all_gather: 0 100"));
}

TEST_F(CoreExamples, AFlagThatIsUnknownOnOneRankNamesFlagAndRank) {
  const Ending ending = launch_unlike("collectives_tour", "", "--nonsense").finish();
  EXPECT_EQ(ending.exit_code, 2);
  EXPECT_THAT(ending.err,
              AllOf(HasSubstr("[1] The following argument was not expected: --nonsense"),
                    HasSubstr("lockstep run: rank 1 (pid "), HasSubstr("ended with exit code 2")));
}

TEST_F(CoreExamples, OutputThatIsLostIsAFailure) {
  const Ending ending = start({"sh", "-c", "\"$0\" >/dev/full", program("collectives_tour")}).finish();
  EXPECT_EQ(ending.exit_code, 1);
  EXPECT_EQ(ending.err,
            "collectives_tour: stdout cannot be written: what was printed is lost; is its disk full?\n");
}

class CoreExample : public ExampleTest, public ::testing::WithParamInterface<const char*> {};
INSTANTIATE_TEST_SUITE_P(Of, CoreExample, ::testing::Values("01_hello_ranks", "collectives_tour"),
                         [](const auto& info) { return std::string(info.param); });

TEST_P(CoreExample, NamesARankThatIsKilledBeforeItJoins) {
  const Ending ending = launch_hurt(GetParam(), "KILL").finish();
  EXPECT_EQ(ending.exit_code, 128 + SIGKILL);
  EXPECT_THAT(ending.err,
              AllOf(HasSubstr("lockstep run: rank 1 (pid "), HasSubstr("was killed by signal 9")));
}

TEST_P(CoreExample, NamesARankThatIsStoppedBeforeItJoins) {
  const Ending ending = launch_hurt(GetParam(), "STOP", {{"LOCKSTEP_INIT_TIMEOUT", "1s"}}).finish();
  EXPECT_EQ(ending.exit_code, 1);
  EXPECT_THAT(lines_with(ending.err, "[0] "), ElementsAre(HasSubstr("rank 1"))) << ending.err;
}

}  // namespace
}  // namespace lockstep::testing
