// What is said where ranks called different things, died or gave up.
#include "lockstep/view/explain/explain.h"

#include "lockstep/view/explain/made_up_record_test.h"

namespace lockstep::view {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

class Explain : public MadeUpRecord {};

TEST_F(Explain, AMismatch) {
  make(4);
  for (const std::size_t each : {0U, 1U, 3U}) in(each, failed(7, reduction(), 10));
  in(2, failed(7, broadcast(1), 0));
  blame(ErrorCode::mismatch, -1, 2);
  EXPECT_EQ(first_line(),
            "mismatch: as #7 in group \"world\" rank 2 called broadcast (400 bytes from rank 1), but ranks "
            "0-1, 3 called all_reduce (sum of f32 x 100)");
}

TEST_F(Explain, AMismatchOfTwoBlamesTheLaterRank) {
  make(2);
  in(0, failed(7, reduction(100), 10));
  in(1, failed(7, reduction(101), 0));
  EXPECT_EQ(first_line(),
            "mismatch: as #7 in group \"world\" rank 1 called all_reduce (sum of f32 x 101), "
            "but rank 0 called all_reduce (sum of f32 x 100)");
}

TEST_F(Explain, AMismatchOfManyKinds) {
  make(4);
  for (const std::size_t each : {0U, 1U}) in(each, failed(7, reduction(), 10));
  in(2, failed(7, reduction(5), 9));
  in(3, failed(7, barrier(), 8));
  EXPECT_EQ(first_line(),
            "mismatch: as #7 in group \"world\" rank 3 called barrier, but ranks 0-1 called "
            "all_reduce (sum of f32 x 100), and others something else again");
}

TEST_F(Explain, AMismatchWithACallThatIsOver) {
  make(2);
  rank(0).events.push_back(over(7, broadcast(0), 900));
  in(1, open(7, reduction(), 800, {0}));
  blame(ErrorCode::timeout, 0, 1);
  EXPECT_EQ(first_line(),
            "mismatch: as #7 in group \"world\" rank 1 called all_reduce (sum of f32 x 100), "
            "but rank 0 called broadcast (400 bytes)");
}

TEST_F(Explain, TheSameCallIsNoMismatch) {
  make(2);
  rank(0).events.push_back(over(7, broadcast(0), 900));
  in(1, open(7, broadcast(0), 800, {0}));
  EXPECT_THAT(first_line(), Not(StartsWith("mismatch")));
}

TEST_F(Explain, AMismatchOfMessagesInTheRanksWords) {
  make(2);
  in(0, failed(0, message(Operation::send), 10));
  blame(ErrorCode::mismatch, -1, 0, "rank 0 called send, rank 1 another");
  EXPECT_EQ(first_line(), "mismatch: rank 0 called send, rank 1 another");
}

TEST_F(Explain, ARankThatWasKilledBetweenCalls) {
  make(3);
  in(0, failed(1, reduction(), 30, {1}));
  in(2, failed(1, reduction(), 20, {1}));
  rank(1).state = ProcessState::gone;
  rank(1).ending = FlightEnding{.signal = 9, .order = 1};
  for (const std::size_t each : {0U, 2U}) rank(each).ending = FlightEnding{.exit_code = 1, .order = 2};
  blame(ErrorCode::peer_lost, 1, -1);
  EXPECT_EQ(explain(record),
            "dead rank: rank 1 (pid 101) was killed by signal 9 (SIGKILL) outside of any collective, after "
            "barrier #0 in group \"world\"; ranks 0, 2 waited for it in all_reduce #1 (sum of f32 x 100) in "
            "group \"world\"\n"
            "  rank 0 (pid 100): in all_reduce #1 (sum of f32 x 100) in group \"world\" for 30 ms, waiting "
            "for rank 1; ended with exit code 1\n"
            "  rank 1 (pid 101): outside of any collective for 5.0 s, after barrier #0 in group \"world\"; "
            "killed by signal 9 (SIGKILL)\n"
            "  rank 2 (pid 102): in all_reduce #1 (sum of f32 x 100) in group \"world\" for 20 ms, waiting "
            "for rank 1; ended with exit code 1\n"
            "first cause, found by the launcher: what it was\n"
            "job 4f2a, host a, now\n");
}

TEST_F(Explain, ARankThatWasKilledInACall) {
  make(2);
  in(0, failed(1, reduction(), 30, {1}));
  in(1, open(1, reduction(), 25, {0}));
  rank(1).state = ProcessState::gone;
  rank(1).ending = FlightEnding{.signal = 11, .order = 1};
  blame(ErrorCode::peer_lost, 1, 0);
  EXPECT_EQ(first_line(),
            "dead rank: rank 1 (pid 101) was killed by signal 11 (SIGSEGV) in the middle of all_reduce #1 "
            "(sum of f32 x 100) in group \"world\"; rank 0 waited for it in all_reduce #1 (sum of f32 x 100) "
            "in group \"world\"");
}

TEST_F(Explain, ThoseThatComeAfterADeathWaitForItToo) {
  make(3);
  OpenCall early = failed(1, reduction(), 30, {1});
  early.failed_ns = failure - 20 * ms;
  in(0, early);
  in(2, failed(1, reduction(), 10));
  rank(1).ending = FlightEnding{.exit_code = 0, .order = 1};
  blame(ErrorCode::peer_lost, 1, 0);
  EXPECT_EQ(first_line(),
            "dead rank: rank 1 (pid 101) ended with exit code 0 outside of any collective, after barrier #0 "
            "in group \"world\"; ranks 0, 2 waited for it in all_reduce #1 (sum of f32 x 100) in group "
            "\"world\"");
}

TEST_F(Explain, ADeathThatNobodyWaitedFor) {
  make(2);
  rank(1).left = true;
  rank(1).ending = FlightEnding{.exit_code = 3, .order = 1};
  rank(0).ending = FlightEnding{.order = 2, .by_launcher = true};
  EXPECT_EQ(first_line(),
            "dead rank: rank 1 (pid 101) ended with exit code 3 outside of any collective, "
            "after barrier #0 in group \"world\"; no rank waited for it");
}

TEST_F(Explain, OfSeveralFailuresTheFirst) {
  make(3);
  rank(0).ending = FlightEnding{.exit_code = 1, .order = 4};
  rank(1).ending = FlightEnding{.exit_code = 1, .order = 3};
  rank(2).ending = FlightEnding{.exit_code = 1, .order = 2, .by_launcher = true};
  EXPECT_THAT(first_line(), StartsWith("dead rank: rank 1 "));
}

TEST_F(Explain, ARankThatGaveACallUp) {
  make(2);
  in(0, failed(1, reduction(), 30, {1}));
  in(1, failed(1, reduction(), 25));
  blame(ErrorCode::peer_lost, 1, 1, "rank 1 gave up all_reduce #1: an exception there ended it early");
  EXPECT_EQ(first_line(),
            "failed rank: rank 1 gave up all_reduce #1: an exception there ended it early; rank 0 waited for "
            "it in all_reduce #1 (sum of f32 x 100) in group \"world\"");
}

TEST_F(Explain, ARankThatGaveACallUpInWhichNoneWaitedForItJustThen) {
  make(4);
  in(0, failed(1, reduction(), 30, {3}));
  in(1, failed(1, reduction(), 25));
  in(2, failed(1, reduction(), 30, {3}));
  blame(ErrorCode::peer_lost, 1, 1, "rank 1 gave up all_reduce #1: an exception there ended it early");
  EXPECT_EQ(
      first_line(),
      "failed rank: rank 1 gave up all_reduce #1: an exception there ended it early; ranks 0, 2 were in "
      "all_reduce #1 (sum of f32 x 100) in group \"world\" with it");
}

TEST_F(Explain, ARankThatLeftAndStillRan) {
  make(2);
  in(0, failed(1, reduction(), 30, {1}));
  blame(ErrorCode::peer_lost, 1, 0, "rank 1 left the job while others still needed it");
  EXPECT_EQ(first_line(),
            "dead rank: rank 1 left the job while others still needed it; rank 0 waited for it "
            "in all_reduce #1 (sum of f32 x 100) in group \"world\"");
  EXPECT_THAT(explain(record), HasSubstr("after barrier #0 in group \"world\"; it still ran\n"));
}

TEST_F(Explain, AnErrorThatIsNobodysAbsence) {
  make(2);
  in(0, failed(1, reduction(), 30, {1}));
  blame(ErrorCode::corrupt_data, -1, 0, "what came is no message");
  EXPECT_EQ(first_line(), "failed rank: rank 0 said: what came is no message");
}

}  // namespace
}  // namespace lockstep::view
