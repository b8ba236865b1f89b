// What is said where ranks waited for others, and where nothing is wrong.
#include "lockstep/execute/message.h"
#include "lockstep/view/explain/explain.h"
#include "lockstep/view/explain/made_up_record_test.h"

namespace lockstep::view {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::StartsWith;

class ExplainWaits : public MadeUpRecord {};

TEST_F(ExplainWaits, ASlowRank) {
  make(4);
  for (const std::size_t each : {0U, 2U, 3U}) in(each, failed(1, reduction(), 1000 + each, {1}));
  rank(1).ending = FlightEnding{.signal = 15, .order = 5, .by_launcher = true};
  blame(ErrorCode::timeout, 1, 0);
  EXPECT_EQ(first_line(),
            "slow rank: rank 1 (pid 101) was outside of any collective for 5.0 s, after barrier #0 in group "
            "\"world\"; ranks 0, 2-3 waited 1.0 s for it in all_reduce #1 (sum of f32 x 100) in group "
            "\"world\"");
  EXPECT_THAT(explain(record), HasSubstr("in group \"world\"; ended by the launcher\n"));
}

TEST_F(ExplainWaits, ASlowRankThatCameWhenItWasTooLate) {
  make(2);
  in(0, failed(1, reduction(), 1000, {1}));
  OpenCall late = failed(1, reduction(), 0);
  late.begin_ns = failure + 300 * ms;
  late.failed_ns = failure + 301 * ms;
  in(1, late);
  blame(ErrorCode::timeout, 1, 0);
  EXPECT_THAT(first_line(),
              StartsWith("slow rank: rank 1 (pid 101) was outside of any collective for 5.0 s"));
  EXPECT_THAT(explain(record),
              HasSubstr("called all_reduce #1 (sum of f32 x 100) in group \"world\" 300 ms later"));
}

TEST_F(ExplainWaits, SeveralSlowRanks) {
  make(4);
  for (const std::size_t each : {0U, 2U}) in(each, failed(1, reduction(), 1000, {1, 3}));
  EXPECT_THAT(first_line(), StartsWith("slow ranks: ranks 1, 3; of these rank 1 (pid 101) was outside of "));
  rank(3).state = ProcessState::stopped;
  EXPECT_EQ(first_line(),
            "slow rank: rank 3 (pid 103) was stopped (by SIGSTOP or a debugger), outside of any collective "
            "for 5.0 s, after barrier #0 in group \"world\"; ranks 0, 2 waited 1.0 s for it in all_reduce #1 "
            "(sum of f32 x 100) in group \"world\"");
}

TEST_F(ExplainWaits, ARankThatWasStoppedInTheMiddleOfACall) {
  make(2);
  in(0, failed(1, reduction(), 1000, {1}));
  in(1, open(1, reduction(), 2000, {0}));  // rank 0 has come since, but it cannot know
  rank(1).state = ProcessState::stopped;
  EXPECT_EQ(
      first_line(),
      "slow rank: rank 1 (pid 101) was stopped (by SIGSTOP or a debugger), in all_reduce #1 (sum of f32 "
      "x 100) in group \"world\" for 2.0 s; rank 0 waited 1.0 s for it in all_reduce #1 (sum of f32 x "
      "100) in group \"world\"");
}

TEST_F(ExplainWaits, ARankThatBeganACallAndDoesNotSeeToIt) {
  make(2);
  in(0, failed(1, reduction(), 1500, {1}));
  in(1, open(1, reduction(), 2000));
  EXPECT_THAT(first_line(),
              StartsWith("slow rank: rank 1 (pid 101) was in all_reduce #1 (sum of f32 x 100) in "
                         "group \"world\" for 2.0 s; rank 0 waited 1.5 s for it"));
}

TEST_F(ExplainWaits, AChainIsFollowedToItsEnd) {
  make(4);
  add_group("world/1,2", {1, 2});
  in(0, failed(1, barrier(), 1000, {1}));
  in(3, failed(1, barrier(), 1000, {1}));
  in(1, open(0, reduction(), 1100, {2}, "world/1,2"));
  EXPECT_THAT(first_line(),
              StartsWith("slow rank: rank 2 (pid 102) was outside of any collective for 5.0 s, after barrier "
                         "#0 in group \"world\"; rank 1 waited 1.1 s for it in all_reduce #0 (sum of f32 x "
                         "100) in group \"world/1,2\""));
}

TEST_F(ExplainWaits, ARankOfAnotherHost) {
  make(2);
  record.groups[0].members = {0, 1, -1, -1};
  in(0, failed(1, reduction(), 1000, {3}));
  in(1, failed(1, reduction(), 1000, {3}));
  EXPECT_EQ(first_line(),
            "slow rank: rank 3 (of another host); ranks 0-1 waited 1.0 s for it in all_reduce "
            "#1 (sum of f32 x 100) in group \"world\"");
}

TEST_F(ExplainWaits, ARankThatHasNotJoined) {
  make(2);
  rank(1) = {.rank = 1, .pid = 101, .state = ProcessState::blocked};
  in(0, failed(1, reduction(), 1000, {1}));
  EXPECT_THAT(first_line(),
              StartsWith("slow rank: rank 1 (pid 101) was in a system call that does not return "
                         "(disk, network), not in the job: it has not called lockstep::init()"));
}

TEST_F(ExplainWaits, RanksThatWaitInTwoGroups) {
  make(3);
  add_group("world/1,2", {1, 2});
  for (const std::size_t each : {0U, 1U}) in(each, failed(1, barrier(), 1000, {2}));
  in(2, open(0, reduction(), 1010, {1}, "world/1,2"));
  blame(ErrorCode::timeout, -1, 0);
  EXPECT_EQ(
      first_line(),
      "crossed calls: rank 1 waited in barrier #1 in group \"world\" for rank 2, rank 2 waited in "
      "all_reduce #0 (sum of f32 x 100) in group \"world/1,2\" for rank 1: all ranks have to make these "
      "calls in one order");
  EXPECT_THAT(explain(record), HasSubstr("rank 0 (pid 100): in barrier #1 in group \"world\" for 1.0 s, "
                                         "waiting for rank 2; it still ran\n"));
}

TEST_F(ExplainWaits, RanksThatWaitInTwoGroupsAndHaveNotLookedYet) {
  make(2);
  add_group("world/0,1", {0, 1});
  in(0, open(1, barrier(), 3));
  in(1, open(0, barrier(), 2, {}, "world/0,1"));
  EXPECT_THAT(first_line(),
              StartsWith("crossed calls: rank 0 waited in barrier #1 in group \"world\" for rank "
                         "1, rank 1 waited in barrier #0 in group \"world/0,1\" for rank 0"));
}

TEST_F(ExplainWaits, ALongCircle) {
  make(6);
  for (std::size_t each = 0; each < 6; ++each) {
    const int next = static_cast<int>((each + 1) % 6);
    const std::string name = "world/" + std::to_string(each);
    add_group(name, {static_cast<int>(each), next});
    in(each, failed(0, barrier(), 1000, {next}, name));
  }
  EXPECT_EQ(
      first_line(),
      "crossed calls: rank 0 waited in barrier #0 in group \"world/0\" for rank 1, rank 1 waited in "
      "barrier #0 in group \"world/1\" for rank 2, rank 2 waited in barrier #0 in group \"world/2\" for "
      "rank 3, rank 3 waited in barrier #0 in group \"world/3\" for rank 4, and so on through 6 ranks: "
      "all ranks have to make these calls in one order");
}

TEST_F(ExplainWaits, ACallThatWaitsBesideAnotherIsNoCircle) {
  make(3);  // rank 1 waits for rank 0, which is slow; what rank 2 waits for would come afterwards
  add_group("world/1,2", {1, 2});
  in(1, failed(1, barrier(), 1000, {0}));
  in(1, failed(0, reduction(), 1100, {2}, "world/1,2"));
  in(2, failed(1, barrier(), 1000, {0, 1}));
  EXPECT_THAT(first_line(), StartsWith("slow rank: rank 0 (pid 100) "));
}

TEST_F(ExplainWaits, MessagesThatAllReceiveFirst) {
  make(3);
  for (int each = 0; each < 3; ++each) {
    const int from = (each + 2) % 3;
    in(static_cast<std::size_t>(each), with_peer(failed(0, message(Operation::receive), 2000, {from}), from));
  }
  EXPECT_EQ(first_line(),
            "circle of messages: rank 0 waited in recv #0 (10 bytes) in group \"world\" for rank 2, rank 2 "
            "waited in recv #0 (10 bytes) in group \"world\" for rank 1, rank 1 waited in recv #0 (10 bytes) "
            "in group \"world\" for rank 0: all receive first, or all send much");
}

TEST_F(ExplainWaits, AMessageFromAnyoneIsAwaitedFromOneOfThem) {
  make(3);
  in(0, with_peer(failed(0, message(Operation::receive), 2000, {1, 2}), any_source));
  in(1, with_peer(failed(0, message(Operation::receive), 2000, {0}), 0));
  EXPECT_THAT(first_line(), StartsWith("slow rank: rank 2 "));
  EXPECT_THAT(explain(record), HasSubstr("for 2.0 s, waiting for any of ranks 1-2;"));
  in(2, with_peer(failed(0, message(Operation::receive), 2000, {0}), 0));
  EXPECT_THAT(first_line(), StartsWith("circle of messages: rank 0 "));
}

TEST_F(ExplainWaits, WhoIsAwaitedFollowsFromTheOthersWhereTheRankHadNoTimeToSay) {
  make(3);
  in(0, failed(1, reduction(), 10));
  rank(2).events.push_back(over(1, reduction(), 1));
  EXPECT_THAT(first_line(), StartsWith("slow rank: rank 1 "));
}

TEST_F(ExplainWaits, MoreAwaitedRanksThanOneRankSays) {
  make(14);
  OpenCall call = failed(1, reduction(), 1000, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10});
  call.awaited_count = 13;
  in(0, call);
  EXPECT_THAT(first_line(), StartsWith("slow ranks: ranks 1-13; of these rank 1 "));
}

TEST_F(ExplainWaits, AJobThatGoesOn) {
  make(2);
  record.goes_on = true;
  record.at_ns = failure;
  EXPECT_EQ(first_line(), "nothing is wrong: no rank waits for another");
  in(0, open(1, reduction(), 20, {1}));
  EXPECT_EQ(first_line(), "nothing is wrong: no rank waits longer than 20 ms");
  rank(0).open_calls = {open(1, reduction(), 90'000, {1})};
  EXPECT_EQ(first_line(),
            "slow rank: rank 1 (pid 101) is outside of any collective for 5.0 s, after barrier #0 in group "
            "\"world\"; rank 0 has waited 1 min 30 s for it in all_reduce #1 (sum of f32 x 100) in group "
            "\"world\"");
  rank(1).state = ProcessState::gone;
  EXPECT_THAT(first_line(), StartsWith("dead rank: rank 1 (pid 101) is gone outside of any collective"));
  EXPECT_THAT(explain(record), HasSubstr("; its process is gone\n"));
}

TEST_F(ExplainWaits, RanksThatTalkToEachOtherWhileOthersWait) {
  make(4);
  add_group("world/0,1", {0, 1});
  record.goes_on = true;
  record.at_ns = failure;
  in(0, open(471, barrier(), 3, {1}, "world/0,1"));
  in(1, open(472, barrier(), 2, {0}, "world/0,1"));
  for (const std::size_t each : {2U, 3U}) in(each, open(1, barrier(), 90'000, {0, 1}));
  EXPECT_THAT(
      first_line(),
      MatchesRegex("slow ranks: ranks 0-1; of these rank 0 .* is in barrier #471 .* for 3.0 ms; ranks "
                   "2-3 have waited 1 min 30 s for it in barrier #1 in group \"world\""));
}

TEST_F(ExplainWaits, ARecordOfNothing) {
  EXPECT_EQ(explain(FlightRecord{}), "nothing is wrong: no rank waited for another\nhost , \n");
  record.first_cause = {ErrorCode::timeout, -1, -1, "rank 1 did\nnot \x1b[2J arrive"};
  EXPECT_EQ(first_line(), "failure: rank 1 did not  [2J arrive");
}

TEST_F(ExplainWaits, AGroupThatNobodyNamed) {
  make(2);
  record.groups.clear();
  in(0, failed(1, reduction(), 1000, {1}));
  EXPECT_THAT(first_line(), HasSubstr("in a group without a name (" + std::to_string(group_number("world"))));
}

}  // namespace
}  // namespace lockstep::view
