#include "lockstep/schedule/draw.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

#include "lockstep/base/error.h"
#include "lockstep/schedule/replay.h"

namespace lockstep::schedule {
namespace {

using ::testing::HasSubstr;

AlgorithmEntry find(std::string_view name, Operation operation) {
  for (const AlgorithmEntry& entry : all_algorithms()) {
    if (!is_seen(entry)) continue;
    if (entry.name == name && entry.operation == operation) return entry;
  }
  throw_invalid_argument("no such algorithm");
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

TEST(Draw, ShowsARoundForEachMessageThatWaitsForAnother) {
  EXPECT_EQ(draw(find("ring", Operation::all_reduce), 3),
            "rank 0  ->1 c <-2 b +b 20  ->1 b <-2 a +a 120  ->1 a <-2 c  ->1 c <-2 b\n"
            "rank 1  ->2 a <-0 c +c 01  ->2 c <-0 b +b 201  ->2 b <-0 a  ->2 a <-0 c\n"
            "rank 2  ->0 b <-1 a +a 12  ->0 a <-1 c +c 012  ->0 c <-1 b  ->0 b <-1 a\n");
}

TEST(Draw, LeavesEmptyWhereARankHasNothingToDo) {
  EXPECT_EQ(draw(find("tree", Operation::broadcast), 4),
            "rank 0  ->2 abcd ->1 abcd\n"
            "rank 1  <-0 abcd\n"
            "rank 2  <-0 abcd           ->3 abcd\n"
            "rank 3                     <-2 abcd\n");
}

TEST(Draw, ShowsWhereRanksWaitForAllAndWhatIsPushedAndPulled) {
  EXPECT_EQ(draw(find("arena", Operation::gather), 3),
            "rank 0 | <-in1 d <-in2 f |\n"
            "rank 1 | ->out0 c        |\n"
            "rank 2 | ->out0 e        |\n");
}

TEST(Draw, NamesTheMemoryThatAReductionReadsAndWrites) {
  EXPECT_EQ(draw(find("staged", Operation::all_reduce), 3),
            "rank 0 | ->A bc | +a in0 A12 ->A ->B ef   | +d in0 B12 ->B <-A1 b <-A2 c   | <-B1 e <-B2 f\n"
            "rank 1 | ->A ac | +b A0 in1 A2 ->A ->B df | +e B0 in1 B2 ->B <-A0 a <-A2 c | <-B0 d <-B2 f\n"
            "rank 2 | ->A ab | +c A01 in2 ->A ->B de   | +f B01 in2 ->B <-A0 a <-A1 b   | <-B0 d <-B1 e\n");
}

TEST(Draw, NamesWhatRanksExchangeBySenderAndReceiver) {
  EXPECT_EQ(draw(find("bruck", Operation::all_to_all), 4),
            "rank 0  ->1 a1a3 <-3 d0d2  ->2 a2d2 <-2 c0b0\n"
            "rank 1  ->2 b2b0 <-0 a1a3  ->3 b3a3 <-3 d1c1\n"
            "rank 2  ->3 c3c1 <-1 b2b0  ->0 c0b0 <-0 a2d2\n"
            "rank 3  ->0 d0d2 <-2 c3c1  ->1 d1c1 <-1 b3a3\n");
}

TEST(Draw, WritesLongListsShort) {
  const auto lines = lines_of(draw(find("arena", Operation::all_reduce), 12));
  EXPECT_EQ(lines[2], "rank 2  | +c in0-11 ->out0-11 |");
  EXPECT_THAT(draw(find("tree", Operation::broadcast), 6), HasSubstr("->4 a-f ->2 a-f ->1 a-f\n"));
}

TEST(Draw, FitsAPageForFourRanks) {
  for (const AlgorithmEntry& entry : all_algorithms()) {
    if (!is_seen(entry)) continue;
    const auto lines = lines_of(draw(entry, 4));
    EXPECT_EQ(lines.size(), 4U);
    for (const std::string& line : lines)
      EXPECT_LE(line.size(), 110U) << entry.name << " " << to_string(entry.operation) << ": " << line;
  }
}

TEST(Draw, ShowsAnyNumberOfRanks) {
  for (const AlgorithmEntry& entry : all_algorithms()) {
    if (!is_seen(entry)) continue;
    for (int ranks = 1; ranks <= 26; ranks += ranks < 9 ? 1 : 17) {
      EXPECT_EQ(lines_of(draw(entry, ranks)).size(), static_cast<std::size_t>(ranks)) << entry.name;
    }
  }
}

Schedule forgotten_send(const Call& call) {
  Schedule steps;
  if (call.rank == 1) steps.wait(steps.receive(0, {Space::output, 1, 0}, call.elements));
  return steps;
}

TEST(Draw, RefusesWhatNeverEnds) {
  const AlgorithmEntry broken{"broken", Operation::broadcast, Requirement::channels, forgotten_send};
  try {
    draw(broken, 2);
    FAIL() << "was drawn";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_THAT(error.what(), HasSubstr("rank 1 does not get past its step 1"));
  }
}

}  // namespace
}  // namespace lockstep::schedule
