#include "lockstep/trace/flight_record.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <nlohmann/json.hpp>

namespace lockstep::trace {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

OpenCall open_call() {
  OpenCall call{.sequence = 412,
                .begin_ns = 1000,
                .arrived_ns = 2000,
                .looked_ns = 3000,
                .failed_ns = 4000,
                .group = 7,
                .peer = -1,
                .awaited_count = 2,
                .awaited = {1, 2}};
  call.signature = {.elements = 5,
                    .root = 1,
                    .detail = 99,
                    .prescale = 0.1F,
                    .operation = Operation::reduce,
                    .dtype = Dtype::bf16,
                    .reduce_op = ReduceOp::max};
  return call;
}

CollectiveEvent event() {
  CollectiveEvent event{};
  event.sequence = 411;
  event.elements = 6;
  event.begin_ns = 500;
  event.arrived_ns = 600;
  event.end_ns = 700;
  event.group = 7;
  event.operation = Operation::all_gather;
  event.failed = 1;
  std::strcpy(event.algorithm, "ring");
  return event;
}

FlightRecord whole_record() {
  FlightRecord record{.job = "4f2a", .host = "a", .written_at = "2025-03-01T12:00:00Z", .at_ns = 9000};
  record.first_cause = {ErrorCode::peer_lost, 1, 0, "rank 1 \"died\"\n"};
  record.changes = {{.at_ns = 8000, .view = 2, .text = "rank 1 died"}};
  record.changes_left_out = 5;
  record.groups = {{.number = 7, .name = "world/0,1", .members = {0, -1}}};
  record.ranks = {{.rank = 0, .pid = 41, .joined = true, .state = ProcessState::stopped},
                  {.rank = 1, .pid = 42, .left = true, .state = ProcessState::gone}};
  record.ranks[0].open_calls = {open_call()};
  record.ranks[0].open_calls_left_out = 3;
  record.ranks[0].events = {event()};
  record.ranks[1].ending = FlightEnding{.exit_code = 3, .signal = 9, .order = 2, .by_launcher = true};
  return record;
}

TEST(FlightRecord, IsReadAsItWasWritten) {
  const std::string text = whole_record().to_text();
  const FlightRecord record = FlightRecord::parse(text, "it");
  EXPECT_EQ(record.to_text(), text);
  EXPECT_EQ(record.job, "4f2a");
  EXPECT_EQ(record.at_ns, 9000U);
  ASSERT_TRUE(record.first_cause.has_value());
  EXPECT_EQ(record.first_cause->code, ErrorCode::peer_lost);
  EXPECT_EQ(record.first_cause->text, "rank 1 \"died\"\n");
  EXPECT_EQ(record.changes.at(0).at_ns, 8000U);
  EXPECT_EQ(record.changes.at(0).view, 2U);
  EXPECT_EQ(record.changes.at(0).text, "rank 1 died");
  EXPECT_EQ(record.changes_left_out, 5U);
  EXPECT_THAT(record.groups.at(0).members, ElementsAre(0, -1));
  const FlightRank& first = record.ranks.at(0);
  EXPECT_TRUE(first.joined);
  EXPECT_EQ(first.state, ProcessState::stopped);
  EXPECT_FALSE(first.ending.has_value());
  const OpenCall& call = first.open_calls.at(0);
  EXPECT_TRUE(call.signature.matches(open_call().signature));
  EXPECT_EQ(call.sequence, 412U);
  EXPECT_EQ(call.failed_ns, 4000U);
  EXPECT_EQ(call.peer, -1);
  EXPECT_THAT(call.awaited_ranks(), ElementsAre(1, 2));
  const CollectiveEvent& last = first.events.at(0);
  EXPECT_EQ(last.arrived_ns, 600U);
  EXPECT_EQ(last.end_ns, 700U);
  EXPECT_EQ(last.operation, Operation::all_gather);
  EXPECT_STREQ(last.algorithm, "ring");
  EXPECT_EQ(record.ranks.at(1).ending->signal, 9);
  EXPECT_TRUE(record.ranks.at(1).ending->by_launcher);
}

TEST(FlightRecord, WritesWhateverMemoryHolds) {
  FlightRecord record = whole_record();
  record.first_cause->text = "caf\xe9 \x01 \"";
  std::memset(record.ranks[0].events[0].algorithm, '"', sizeof(CollectiveEvent::algorithm));
  record.ranks[0].events[0].end_ns = 0;  // before its begin
  const FlightRecord read = FlightRecord::parse(record.to_text(), "it");
  EXPECT_EQ(read.first_cause->text, "caf\xef\xbf\xbd \x01 \"");
  EXPECT_EQ(read.ranks[0].events[0].end_ns, read.ranks[0].events[0].begin_ns);
}

/// What is said of whole_record() after a change.
std::string complaint(const std::function<void(json&)>& change) {
  json value = json::parse(whole_record().to_text());
  change(value);
  try {
    FlightRecord::parse(value.dump(), "some.json");
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::corrupt_data);
    return error.what();
  }
  return "nothing";
}

struct Damage {
  std::function<void(json&)> change;
  std::string complaint;
};

TEST(FlightRecord, NamesWhatIsWrong) {
  const std::string huge(FlightLimits::text_bytes + 1, 'x');
  const std::vector<Damage> all = {
      {[](json& v) { v = json::array(); }, "some.json: is no object"},
      {[](json& v) { v["format"] = "lockstep-tuning-1"; }, R"("format" is "lockstep-tuning-1", not)"},
      {[](json& v) { v["version"] = 2; }, "is of version 2, this Lockstep reads version 1"},
      {[](json& v) { v.erase("ranks"); }, R"(some.json: "ranks" is missing)"},
      {[&](json& v) { v["host"] = huge; }, R"("host" is longer than 8192 bytes)"},
      {[](json& v) { v["at_ns"] = -1; }, R"("at_ns" is no whole number from 0 to)"},
      {[](json& v) { v["at_ns"] = 1.5; }, R"("at_ns" is no whole number from 0 to)"},
      {[](json& v) { v["first_cause"]["code"] = "bad luck"; }, R"("first_cause": "code" is "bad luck")"},
      {[](json& v) {
         v["groups"][0]["members"] = {1, 70000};
       },
       "group 0: \"members\" is no whole number"},
      {[](json& v) { v["ranks"][1]["rank"] = 0; }, R"("ranks" are not in their order)"},
      {[](json& v) { v["ranks"][1]["rank"] = UINT64_MAX; }, "rank 1: \"rank\" is no whole number"},
      {[](json& v) { v["ranks"][0]["joined"] = 1; }, "rank 0: \"joined\" is neither true nor false"},
      {[](json& v) { v["ranks"][1]["ending"]["signal"] = 256; }, "rank 1: \"ending\": \"signal\" is no"},
      {[](json& v) { v["ranks"][0]["open_calls"][0]["operation"] = "dance"; },
       "rank 0: call 0: \"operation\" is \"dance\", which is none"},
      {[](json& v) { v["ranks"][0]["open_calls"][0]["awaited_count"] = 3; }, "has not as many ranks as"},
      {[](json& v) { v["ranks"][0]["open_calls"][0]["prescale"] = 1e300; }, "\"prescale\" is no number"},
      {[](json& v) { v["ranks"][0]["open_calls"] = json(65, v["ranks"][0]["open_calls"][0]); },
       "\"open_calls\" has more than 64 elements"},
      {[](json& v) { v["ranks"][0]["events"][0].erase(10); }, "rank 0: event 0: has 10 of 11 columns"},
      {[](json& v) { v["ranks"][0]["events"][0][8] = UINT64_MAX; }, "event 0: \"end_after_ns\" is no whole"},
      {[](json& v) { v["ranks"][0]["events"][0][10] = std::string(25, 'a'); }, "\"algorithm\" is too long"},
      {[](json& v) { v["ranks"][0]["events"] = json(4097, v["ranks"][0]["events"][0]); },
       "\"events\" has more than 4096 elements"},
      {[](json& v) { v["ranks"] = {{{{{{{1}}}}}}}; }, "has lists in lists, more than 6 deep"},
  };
  for (const Damage& damage : all)
    EXPECT_THAT(complaint(damage.change), AllOf(StartsWith("some.json: "), HasSubstr(damage.complaint)));
  EXPECT_EQ(complaint([](json& v) { v["of a later version"] = 1; }), "nothing");
}

TEST(FlightRecord, ThatIsCutOffAnywhereIsRefused) {
  std::string text = whole_record().to_text();
  while (text.back() == '\n') text.pop_back();
  for (std::size_t length = 0; length < text.size(); ++length) {
    try {
      FlightRecord::parse(text.substr(0, length), "it");
      FAIL() << length;
    } catch (const Error& error) {
      ASSERT_STREQ(error.what(), "it: is no JSON, or not all of it is there");
    }
  }
}

TEST(FlightRecord, ThatNeverEndsIsRefusedEarly) {
  EXPECT_THROW(FlightRecord::parse(std::string(1 << 20, '['), "it"), Error);
  std::string many = "[0";
  while (many.size() < 2 * FlightLimits::values + 4) many += ",0";
  try {
    FlightRecord::parse(many, "it");
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("holds more than 16777216 values"));
  }
}

}  // namespace
}  // namespace lockstep::trace
