#include "lockstep/view/report/timeline_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/view/report/made_up_run_test.h"

namespace lockstep::view {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;

std::string text_of(const Timeline& timeline) {
  std::string text;
  write_timeline(timeline, [&](std::string_view piece) { text += piece; });
  return text;
}

TimelineParser::Result parse(std::string_view text, std::size_t piece = 1000) {
  TimelineParser parser;
  for (std::size_t at = 0; at < text.size(); at += piece) parser.add(text.substr(at, piece));
  return parser.finish();
}

Timeline small_timeline() {
  Timeline timeline = MadeUpTraining{.ranks = std::vector<MadeUpRank>(2), .steps = 2}.run().timeline;
  timeline.groups = {{7, "world"}};
  timeline.clock_error_ns = 1500;
  const Timeline calls = made_up_calls(2, 2, 1, 3).timeline;
  for (std::size_t rank = 0; rank < 2; ++rank) timeline.ranks[rank].calls = calls.ranks[rank].calls;
  timeline.ranks[1].left_out = 12;
  timeline.ranks[0].spans.push_back(
      {.begin_ns = 5, .end_ns = 5, .value = 2.5, .name = 1, .thread = trace::counter_thread});
  return timeline;
}

TEST(TimelineFile, IsReadAsItWasWritten) {
  const std::string text = text_of(small_timeline());
  for (const std::size_t piece : {1U, 7U, 100000U}) {
    const auto read = parse(text, piece);
    EXPECT_THAT(read.notes, IsEmpty());
    EXPECT_EQ(text_of(read.timeline), text);
    EXPECT_THAT(read.timeline.groups, ElementsAre(Pair(1, "world")));
  }
}

TEST(TimelineFile, HasCallsOfMpiAsTheyWereWritten) {
  Timeline timeline;
  timeline.groups = {{1, "MPI_COMM_WORLD"}};
  const auto call = [](std::string_view routine, std::uint64_t begin, MpiPeers peers, std::int32_t peer,
                       std::int32_t source) {
    return MpiCall{.begin_ns = begin,
                   .end_ns = begin + 10,
                   .bytes = 8,
                   .routine = routine,
                   .communicator = 1,
                   .peer = peer,
                   .source = source,
                   .peers = peers,
                   .has_bytes = true};
  };
  RankTimeline rank{.rank = 0, .pid = 7, .host = "a"};
  rank.mpi_calls = {call("MPI_Bcast", 0, MpiPeers::root, 3, mpi_no_rank),
                    call("MPI_Send", 20, MpiPeers::to, mpi_no_rank, mpi_no_rank),
                    call("MPI_Recv", 40, MpiPeers::from, mpi_no_rank, mpi_any_rank),
                    call("MPI_Sendrecv", 60, MpiPeers::to_and_from, 1, 2),
                    call("MPI_Put", 80, MpiPeers::target, 1, mpi_no_rank),
                    call("MPI_Gather", 100, MpiPeers::root, mpi_root_here, mpi_no_rank)};
  MpiCall begun = call("MPI_Barrier", 140, MpiPeers::none, mpi_no_rank, mpi_no_rank);
  begun.has_returned = begun.has_bytes = false;
  begun.communicator = 0;
  begun.thread = 2;
  rank.mpi_calls.push_back(begun);
  for (const std::uint64_t waited : {0, 4, 10}) {
    MpiCall met = call("MPI_Allreduce", 160 + 20 * waited, MpiPeers::none, mpi_no_rank, mpi_no_rank);
    met.arrived_ns = met.begin_ns + waited;
    met.has_arrived = true;
    rank.mpi_calls.push_back(met);
  }
  timeline.ranks = {rank};
  const std::string text = text_of(timeline);
  const auto read = parse(text);
  EXPECT_THAT(read.notes, IsEmpty());
  EXPECT_EQ(text_of(read.timeline), text);
  ASSERT_EQ(read.timeline.ranks.at(0).mpi_calls.size(), rank.mpi_calls.size());
  const MpiCall& last = read.timeline.ranks[0].mpi_calls.back();
  EXPECT_TRUE(last.has_arrived);
  EXPECT_EQ(last.arrived_ns, last.end_ns);
}

// One's begin is put to the other's end: it comes after what other threads began by then.
TEST(TimelineFile, HasCallsThatOverlapInOneThreadInTheOrderThatItGivesThem) {
  const auto call = [](std::uint64_t begin, std::uint32_t thread) {
    return MpiCall{.begin_ns = begin, .end_ns = begin + 10, .routine = "MPI_Wait", .thread = thread};
  };
  Timeline timeline;
  timeline.ranks = {RankTimeline{.rank = 0, .mpi_calls = {call(0, 0), call(4, 0), call(6, 1)}}};
  const std::string text = text_of(timeline);
  const auto read = parse(text);
  EXPECT_EQ(text_of(read.timeline), text);
  std::vector<std::pair<std::uint32_t, std::uint64_t>> begins;
  for (const MpiCall& one : read.timeline.ranks.at(0).mpi_calls)
    begins.emplace_back(one.thread, one.begin_ns);
  EXPECT_THAT(begins, ElementsAre(Pair(0, 0), Pair(1, 6), Pair(0, 10)));
}

TEST(TimelineFile, ThatWasCutAnywhereHasWhatStandsBefore) {
  const std::string text = text_of(small_timeline());
  const auto events = [](const Timeline& timeline) {
    std::size_t sum = 0;
    for (const RankTimeline& rank : timeline.ranks)
      sum += rank.calls.size() + rank.steps.size() + rank.spans.size();
    return sum;
  };
  std::size_t before = 0;
  for (std::size_t end = 0; end + 3 < text.size(); ++end) {
    const auto read = parse(std::string_view(text).substr(0, end));
    EXPECT_THAT(read.notes, ElementsAre(HasSubstr("cut off"))) << end;
    EXPECT_GE(events(read.timeline), before) << end;
    before = events(read.timeline);
  }
  EXPECT_EQ(before, events(parse(text).timeline));
}

TEST(TimelineFile, LinesThatMakeNoSenseAreLeftOutAndCounted) {
  const std::string garbled[] = {
      "what",
      "[1,2]",
      std::string(200, '['),
      R"({"ph":"X","pid":-1,"tid":1,"name":"step 1","cat":"training","ts":1,"dur":1})",
      R"({"ph":"X","pid":0,"tid":1,"name":"step 1","cat":"training","ts":-5,"dur":1})",
      R"({"ph":"X","pid":0,"tid":1,"name":"step 1","cat":"training","ts":1e300,"dur":1})",
      R"({"ph":"X","pid":0,"tid":1,"name":"step 1","cat":"training","ts":1,"dur":-1})",
      R"({"ph":"X","pid":0,"tid":1,"name":"launch","cat":"call","ts":1,"dur":1})",
      R"({"ph":"X","pid":1e99,"tid":1,"name":7,"cat":[],"ts":"1","dur":{}})",
      std::string(2 * TimelineLimits::line_bytes, 'x')};
  std::string text = R"({"otherData":{"job":7},"traceEvents":[)"
                     "\n";
  for (const std::string& line : garbled) text += line + ",\n";
  text += R"({"ph":"X","pid":3,"tid":1,"name":"step 9","cat":"training","ts":1,"dur":2,"args":[]},)"
          "\n]}\n";
  const auto read = parse(text);
  EXPECT_THAT(read.notes, ElementsAre("10 lines of the timeline could not be read and are left out"));
  ASSERT_EQ(read.timeline.ranks.size(), 1U);
  EXPECT_EQ(read.timeline.ranks[0].steps.at(0).step, 9U);
}

TEST(TimelineFile, OfMoreEventsThanThereIsRoomForHasWholeSlicesOfAllRanks) {
  const std::string text = text_of(made_up_calls(2, 400, 1, 3).timeline);  // of four seconds
  TimelineParser parser(200);
  parser.add(text);
  const auto read = parser.finish();
  ASSERT_EQ(read.timeline.ranks.size(), 2U);
  const auto& one = read.timeline.ranks[0].calls;
  const auto& other = read.timeline.ranks[1].calls;
  EXPECT_GE(one.size(), 50U);
  EXPECT_LE(one.size() + other.size(), 200U);
  EXPECT_EQ(one[20].sequence, 20U);  // a slice is whole
  EXPECT_GT(one.back().sequence, 300U);
  std::size_t common = 0;
  for (const auto& call : one) {
    const auto found = std::ranges::find(other, call.sequence, &trace::CollectiveEvent::sequence);
    common += found != other.end() ? 1 : 0;
  }
  EXPECT_GE(common, one.size() - 8);  // but for calls at the edge of a slice
  EXPECT_THAT(read.notes, ElementsAre(HasSubstr("more events than the report has room for")));
}

}  // namespace
}  // namespace lockstep::view
