#include "lockstep/launch/verdict.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

namespace lockstep::launch {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using Cause = FirstCause::Cause;

int exited(int code) { return code << 8; }  // as waitpid(2) packs it
Ending ending(int rank, int wait_status, int moment) {
  return {.rank = rank, .pid = 100 + rank, .wait_status = wait_status, .moment = moment};
}
Ending ended_by_launcher(int rank, int wait_status, int moment) {
  Ending made = ending(rank, wait_status, moment);
  made.by_launcher = true;
  return made;
}
Cause lost(int culprit, int reporter) {
  return {.code = ErrorCode::peer_lost, .culprit = culprit, .reporter = reporter, .text = "what happened"};
}

TEST(Verdict, AllWellIsZeroAndSilent) {
  const std::vector<Ending> endings = {ending(0, 0, 1), ending(1, 0, 5)};
  EXPECT_EQ(judge(endings, std::nullopt, 0).exit_code, 0);
  EXPECT_EQ(judge(endings, std::nullopt, 0).summary, "");
}

TEST(Verdict, TheEarliestFailureIsToBlame) {
  const std::vector<Ending> endings = {ending(2, 0, 1), ending(1, exited(3), 2), ending(0, exited(4), 3)};
  const Verdict verdict = judge(endings, std::nullopt, 0);
  EXPECT_EQ(verdict.exit_code, 3);
  EXPECT_THAT(verdict.summary, HasSubstr("rank 1 (pid 101) ended with exit code 3\n"));
  EXPECT_THAT(verdict.summary, HasSubstr("rank 0: exit code 4"));
}

TEST(Verdict, OfThoseFoundAtOnceASignalsVictimIsToBlame) {
  const std::vector<Ending> endings = {ending(0, exited(1), 2), ending(1, SIGSEGV, 2),
                                       ending(2, exited(1), 2)};
  const Verdict verdict = judge(endings, std::nullopt, 0);
  EXPECT_EQ(verdict.exit_code, 128 + SIGSEGV);
  EXPECT_THAT(verdict.summary, HasSubstr("rank 1 (pid 101) was killed by signal 11 (SIGSEGV)\n"));
  EXPECT_THAT(verdict.summary, HasSubstr("  ranks 0, 2: exit code 1\n"));
}

TEST(Verdict, OneThatWasKilledIsToBlameThoughOthersWereFoundBefore) {
  std::vector<Ending> endings = {ending(0, exited(1), 1), ending(1, SIGKILL, 2), ending(2, exited(1), 2)};
  endings[0].ended_at_ns = 1'000'000'000;
  endings[1].ended_at_ns = endings[2].ended_at_ns = 1'400'000'000;
  EXPECT_EQ(judge(endings, std::nullopt, 0).rank, 1);
  EXPECT_EQ(judge(endings, lost(0, -1), 0).rank, 1);  // the launcher's own words, from before
  endings[1].ended_at_ns = 1'600'000'000;
  EXPECT_EQ(judge(endings, std::nullopt, 0).rank, 0);
  endings[1] = ending(1, SIGABRT, 2);  // of an exception that nobody caught, say
  endings[1].ended_at_ns = 1'100'000'000;
  EXPECT_EQ(judge(endings, std::nullopt, 0).rank, 0);
}

TEST(Verdict, TheFirstCausesCulpritIsToBlameThoughReapedLater) {
  const std::vector<Ending> endings = {ending(0, exited(1), 1), ending(1, SIGKILL, 9)};
  const Verdict verdict = judge(endings, lost(1, 0), 0);
  EXPECT_EQ(verdict.exit_code, 137);
  EXPECT_THAT(verdict.summary,
              AllOf(HasSubstr("rank 1 (pid 101) was killed by signal 9 (SIGKILL); if nobody did that"),
                    HasSubstr("  first cause, found by rank 0: what happened\n")));
}

TEST(Verdict, OneThatLeftEarlyIsToBlame) {
  const std::vector<Ending> endings = {ending(0, 0, 1), ending(1, exited(9), 2)};
  const Verdict verdict = judge(endings, lost(0, 1), 0);
  EXPECT_EQ(verdict.exit_code, 1);
  EXPECT_THAT(verdict.summary,
              HasSubstr("rank 0 (pid 100) ended with exit code 0 while others still needed it\n"));
  const std::vector<Ending> all_zero = {ending(0, 0, 1), ending(1, 0, 2)};
  EXPECT_EQ(judge(all_zero, lost(0, 1), 0).exit_code, 1);
}

TEST(Verdict, OneThatEndedWellIsNotToBlameForAMismatch) {
  const std::vector<Ending> endings = {ending(0, 0, 1), ending(1, exited(9), 2)};
  const Cause cause{.code = ErrorCode::mismatch, .culprit = 0, .reporter = 1, .text = "not the same"};
  EXPECT_EQ(judge(endings, cause, 0).exit_code, 9);
}

TEST(Verdict, ACulpritThatTheLauncherHadToEndGivesNoExitCode) {
  const std::vector<Ending> endings = {ending(0, exited(5), 1), ended_by_launcher(1, SIGTERM, 2)};
  const Cause cause{
      .code = ErrorCode::timeout, .culprit = 1, .reporter = 0, .text = "rank 1 does not answer"};
  const Verdict verdict = judge(endings, cause, 0);
  EXPECT_EQ(verdict.exit_code, 5);
  EXPECT_EQ(verdict.rank, 1);
  EXPECT_EQ(
      verdict.summary,
      "rank 1 (pid 101) did not go on while others waited for it until a time-out, and was ended by the "
      "launcher\n"
      "  it wrote nothing to stderr\n"
      "  first cause, found by rank 0: rank 1 does not answer\n"
      "  rank 0: exit code 5\n");
  std::vector<Ending> stopped = endings;
  stopped[1].was_stopped = true;
  EXPECT_THAT(judge(stopped, cause, 0).summary,
              HasSubstr("rank 1 (pid 101) was stopped (as by SIGSTOP) while others waited for it"));
}

TEST(Verdict, OneThatOthersWaitedForInVainAndThatFailedIsToBlameForThat) {
  const std::vector<Ending> endings = {ending(0, exited(5), 1), ending(1, exited(6), 2)};
  const Cause cause{
      .code = ErrorCode::timeout, .culprit = 1, .reporter = 0, .text = "rank 1 does not answer"};
  EXPECT_EQ(judge(endings, cause, 0).exit_code, 6);
}

TEST(Verdict, ShowsTheLastLines) {
  std::vector<Ending> endings = {ending(0, exited(5), 1), ending(1, exited(6), 2)};
  endings[0].last_lines = {"one", "two"};
  EXPECT_THAT(judge(endings, std::nullopt, 0).summary,
              HasSubstr("  its last lines on stderr:\n    one\n    two\n"));
  endings[0].last_lines = {};
  EXPECT_THAT(judge(endings, std::nullopt, 0).summary, HasSubstr("  it wrote nothing to stderr\n"));
}

TEST(Verdict, TheLaunchersOwnWordsAreNotRepeated) {
  const std::vector<Ending> endings = {ending(0, exited(5), 1)};
  EXPECT_THAT(judge(endings, lost(0, -1), 0).summary, Not(HasSubstr("what happened")));
}

TEST(Verdict, WhatAllRanksSayIsShownOnce) {
  std::vector<Ending> endings = {ending(0, exited(1), 2), ending(1, exited(1), 1), ending(2, exited(1), 2)};
  for (Ending& each : endings) each.last_lines = {"starting", "error: calls differ, see the log"};
  const Cause cause{.code = ErrorCode::mismatch, .culprit = 1, .reporter = 2, .text = "calls differ"};
  EXPECT_EQ(judge(endings, cause, 0).summary,
            "rank 1 (pid 101) ended with exit code 1\n"
            "  its last lines on stderr:\n    starting\n    error: calls differ, see the log\n"
            "  first cause, found by rank 2: as in the lines above\n"
            "  ranks 0, 2: exit code 1\n");
}

TEST(Verdict, ACauseOfSeveralLinesIsRecognised) {
  std::vector<Ending> endings = {ending(0, exited(1), 1)};
  endings[0].last_lines = {"error: calls differ:", "one", "other"};
  EXPECT_THAT(judge(endings, {{.culprit = 0, .reporter = 0, .text = "calls differ:\none"}}, 0).summary,
              HasSubstr("  first cause, found by rank 0: as in the lines above\n"));
  EXPECT_THAT(judge(endings, {{.culprit = 0, .reporter = 0, .text = "calls differ:\nother"}}, 0).summary,
              HasSubstr("  first cause, found by rank 0: calls differ:\nother\n"));
}

TEST(Verdict, ACulpritOutsideOfTheJobIsIgnored) {
  const std::vector<Ending> endings = {ending(0, exited(5), 1)};
  EXPECT_EQ(judge(endings, lost(77, 0), 0).exit_code, 5);
}

TEST(Verdict, AStoppedJobSaysBySoWhat) {
  const std::vector<Ending> endings = {ending(0, SIGTERM, 1), ending(1, exited(3), 1)};
  EXPECT_EQ(judge(endings, std::nullopt, SIGTERM).exit_code, 143);
  EXPECT_EQ(judge(endings, std::nullopt, SIGTERM).summary, "ended by SIGTERM\n");
  const std::vector<Ending> orderly = {ending(0, 0, 1)};
  EXPECT_EQ(judge(orderly, std::nullopt, SIGTERM).exit_code, 0);
}

}  // namespace
}  // namespace lockstep::launch
