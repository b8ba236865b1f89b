#include "lockstep/view/profile/horovod_timeline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace lockstep::view {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

json written(Timeline timeline) {
  timeline.names = TimelineNames::horovod;
  std::string text;
  write_timeline(timeline, [&](std::string_view piece) { text += piece; });
  return json::parse(text);
}

/// "B NAME at 3", of one tensor.
std::vector<std::string> events_of(const json& timeline, const std::string& tensor) {
  std::map<std::string, int> numbers;
  for (const json& event : timeline) {
    if (event.value("name", "") == "process_name") numbers[event["args"]["name"]] = event["pid"];
  }
  std::vector<std::string> events;
  for (const json& event : timeline) {
    if (event["ph"] == "M" || event["pid"] != numbers.at(tensor)) continue;
    events.push_back(event["ph"].get<std::string>() + " " + event.value("name", "") + " at " +
                     std::to_string(event["ts"].get<int>()));
  }
  return events;
}

trace::SpanEvent named(std::uint64_t begin_us, std::uint64_t end_us, trace::NamedSpan::Part part) {
  return {.begin_ns = begin_us * 1000,
          .end_ns = end_us * 1000,
          .value = 12,
          .name = 1,
          .thread = trace::named_thread({part, Operation::all_reduce, Dtype::f32})};
}
trace::SpanEvent whole(std::uint64_t begin_us, std::uint64_t end_us) {
  return named(begin_us, end_us, trace::NamedSpan::Part::whole);
}
trace::CollectiveEvent call(std::uint32_t group, std::uint64_t sequence, std::uint64_t begin_us,
                            std::uint64_t end_us) {
  trace::CollectiveEvent made{};
  made.sequence = sequence;
  made.elements = 5;
  made.begin_ns = begin_us * 1000;
  made.end_ns = end_us * 1000;
  made.group = group;
  made.operation = Operation::all_reduce;
  made.dtype = Dtype::f64;
  return made;
}

TEST(HorovodTimeline, HasNegotiationsQueuesAndWhoWasReadyWhen) {
  Timeline timeline{.groups = {{7, "world/named:0"}}};
  for (const int rank : {0, 1}) {
    const std::uint64_t ready = rank == 0 ? 1 : 4;
    timeline.ranks.push_back(
        {.rank = rank,
         .calls = {call(7, 0, 6, 9)},
         .spans = {named(ready, 5, trace::NamedSpan::Part::negotiation), whole(ready, 10)},
         .span_names = {"?", "grad \"0\""}});
  }
  const json written_one = written(timeline);
  EXPECT_THAT(events_of(written_one, "grad \"0\""),
              ElementsAre("B NEGOTIATE_ALLREDUCE at 0", "X 0 at 0", "X 1 at 3", "E  at 3", "B ALLREDUCE at 3",
                          "B QUEUE at 3", "E  at 5", "B LOCKSTEP_ALLREDUCE at 5", "E  at 8", "E  at 9"));
  EXPECT_EQ(written_one.back()["args"], json::parse(R"({"dtype":"float32","shape":"[12]"})"));
}

TEST(HorovodTimeline, EachTimeIsOneAlsoWhereARankIsAheadOrItsEventsWereLost) {
  Timeline timeline;
  for (const int rank : {0, 1}) timeline.ranks.push_back({.rank = rank, .span_names = {"?", "loss"}});
  timeline.ranks[0].spans = {whole(0, 10), whole(30, 40), whole(50, 60)};
  timeline.ranks[1].spans = {
      whole(2, 8), whole(9, 38)};  // again before rank 0 knew that the first was over; the third was lost
  EXPECT_THAT(events_of(written(timeline), "loss"),
              ElementsAre("B NEGOTIATE_ALLREDUCE at 0", "X 0 at 0", "X 1 at 2", "E  at 2", "B ALLREDUCE at 2",
                          "B LOCKSTEP_ALLREDUCE at 2", "E  at 10", "E  at 10",  //
                          "B NEGOTIATE_ALLREDUCE at 10", "X 1 at 10", "X 0 at 30", "E  at 30",
                          "B ALLREDUCE at 30", "B LOCKSTEP_ALLREDUCE at 30", "E  at 40", "E  at 40",  //
                          "B NEGOTIATE_ALLREDUCE at 50", "X 0 at 50", "E  at 50", "B ALLREDUCE at 50",
                          "B LOCKSTEP_ALLREDUCE at 50", "E  at 60", "E  at 60"));
}

TEST(HorovodTimeline, OtherCallsAreNamedByOperationAndGroup) {
  Timeline timeline{.groups = {{3, "world"}}};
  for (const int rank : {0, 1})
    timeline.ranks.push_back({.rank = rank, .calls = {call(3, 1, 20, 25), call(3, 0, 10, 15)}});
  EXPECT_THAT(events_of(written(timeline), "all_reduce in world"),
              ElementsAre("B NEGOTIATE_ALLREDUCE at 0", "X 0 at 0", "X 1 at 0", "E  at 0", "B ALLREDUCE at 0",
                          "B LOCKSTEP_ALLREDUCE at 0", "E  at 5", "E  at 5",  //
                          "B NEGOTIATE_ALLREDUCE at 10", "X 0 at 10", "X 1 at 10", "E  at 10",
                          "B ALLREDUCE at 10", "B LOCKSTEP_ALLREDUCE at 10", "E  at 15", "E  at 15"));
}

TEST(HorovodTimeline, OfNothingIsAnEmptyArray) { EXPECT_THAT(written({}), IsEmpty()); }

}  // namespace
}  // namespace lockstep::view
