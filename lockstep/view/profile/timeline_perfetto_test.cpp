// Perfetto's format, as the encoding of protocol buffers has it. That Perfetto shows the same of it as of the JSON,
// TimelineInPerfetto.ShowsTheSameInItsOwnFormat tests in a browser.
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <map>
#include <string>
#include <vector>

#include "lockstep/view/profile/timeline.h"

namespace lockstep::view {
namespace {

using ::testing::ElementsAre;

/// Of a message, by number: numbers as they are, 8 bytes as one, and bytes.
struct Fields {
  std::multimap<int, std::uint64_t> numbers;
  std::multimap<int, std::string> bytes;

  std::uint64_t number(int field) const {
    const auto found = numbers.find(field);
    return found == numbers.end() ? 0 : found->second;
  }
  std::string text(int field) const {
    const auto found = bytes.find(field);
    return found == bytes.end() ? "" : found->second;
  }
};

Fields fields_of(std::string_view message) {
  Fields fields;
  const auto take_number = [&] {
    std::uint64_t number = 0;
    for (int shift = 0;; shift += 7) {
      const auto byte = static_cast<unsigned char>(message.at(0));
      message.remove_prefix(1);
      number |= std::uint64_t{byte & 0x7FU} << shift;
      if (byte < 0x80) return number;
    }
  };
  while (!message.empty()) {
    const std::uint64_t tag = take_number();
    const int field = static_cast<int>(tag >> 3);
    switch (tag & 7) {
      case 0: fields.numbers.emplace(field, take_number()); break;
      case 1: {
        std::uint64_t number = 0;
        for (int byte = 0; byte < 8; ++byte)
          number |= std::uint64_t{static_cast<unsigned char>(message.at(byte))} << (8 * byte);
        message.remove_prefix(8);
        fields.numbers.emplace(field, number);
        break;
      }
      case 2: {
        const std::uint64_t size = take_number();
        fields.bytes.emplace(field, message.substr(0, size));
        message.remove_prefix(size);
        break;
      }
      default: ADD_FAILURE() << "kind " << (tag & 7) << " of field " << field; return fields;
    }
  }
  return fields;
}

/// In the file's order: "begin NAME at T in ROW", "end at T in ROW", "COUNTER = V at T", "remark TEXT in ROW".
std::vector<std::string> events_of(const Timeline& timeline) {
  std::string file;
  write_timeline(
      timeline, [&](std::string_view piece) { file += piece; }, true);
  std::map<std::uint64_t, std::string> rows, names;
  std::vector<std::string> events;
  const Fields whole = fields_of(file);
  EXPECT_EQ(whole.bytes.size(), whole.bytes.count(1)) << "a trace has packets alone";
  for (const auto& [one, bytes] : whole.bytes) {
    const Fields packet = fields_of(bytes);
    for (const auto& [kind, interned] : fields_of(packet.text(12)).bytes) {
      const Fields name = fields_of(interned);
      if (kind != 2) continue;
      EXPECT_TRUE(names.emplace(name.number(1), name.text(2)).second) << name.text(2);
    }
    if (packet.bytes.contains(60)) {
      const Fields track = fields_of(packet.text(60));
      const std::string name =
          fields_of(track.text(4)).text(5) + fields_of(track.text(3)).text(6) + track.text(2);
      EXPECT_TRUE(rows.emplace(track.number(1), name).second) << name;
      continue;
    }
    const Fields event = fields_of(packet.text(11));
    const std::string row = rows.at(event.number(11));
    switch (event.number(9)) {
      case 1:
        events.push_back(
            fmt::format("begin {} at {} in {}", names.at(event.number(10)), packet.number(8), row));
        break;
      case 2: events.push_back(fmt::format("end at {} in {}", packet.number(8), row)); break;
      case 3: events.push_back(fmt::format("remark {} in {}", event.text(23), row)); break;
      case 4:
        events.push_back(
            fmt::format("{} = {} at {}", row, std::bit_cast<double>(event.number(44)), packet.number(8)));
        break;
      default: ADD_FAILURE() << "an event of type " << event.number(9);
    }
  }
  return events;
}

Timeline of(std::vector<trace::SpanEvent> spans, std::vector<std::string> names) {
  Timeline timeline;
  timeline.job = "a job";
  timeline.ranks.push_back(
      {.rank = 3, .pid = 77, .host = "here", .spans = std::move(spans), .span_names = std::move(names)});
  return timeline;
}
trace::SpanEvent span(std::uint32_t name, std::uint64_t begin, std::uint64_t end, std::uint32_t thread = 0) {
  return {.begin_ns = begin, .end_ns = end, .value = 0, .name = name, .thread = thread};
}

TEST(PerfettosFormat, BeginsAndEndsRangesInTheOrderInWhichTheyNest) {
  const Timeline timeline =
      of({span(1, 120, 130), span(0, 100, 200), span(1, 130, 200), span(2, 200, 200), span(2, 250, 250, 1)},
         {"outer", "inner", "empty"});
  EXPECT_THAT(
      events_of(timeline),
      ElementsAre("begin outer at 0 in thread 0", "begin inner at 20 in thread 0", "end at 30 in thread 0",
                  "begin inner at 30 in thread 0", "end at 100 in thread 0", "end at 100 in thread 0",
                  "begin empty at 100 in thread 0", "end at 100 in thread 0",
                  "begin empty at 150 in thread 1", "end at 150 in thread 1"));
}

TEST(PerfettosFormat, CutsARangeThatEndsAfterTheOneThatItIsIn) {
  EXPECT_THAT(events_of(of({span(0, 10, 30), span(1, 20, 40)}, {"first", "second"})),
              ElementsAre("begin first at 0 in thread 0", "begin second at 10 in thread 0",
                          "end at 20 in thread 0", "end at 20 in thread 0"));
}

TEST(PerfettosFormat, HasCountersOfAnyValue) {
  const auto counted = [](std::uint64_t at, double value) {
    return trace::SpanEvent{
        .begin_ns = at, .end_ns = at, .value = value, .name = 0, .thread = trace::counter_thread};
  };
  EXPECT_THAT(events_of(of({counted(5, 0.25), counted(9, -1e300)}, {"rate"})),
              ElementsAre("rate = 0.25 at 0", "rate = -1e+300 at 4"));
}

TEST(PerfettosFormat, HasNamesOfAnyBytes) {
  EXPECT_THAT(events_of(of({span(0, 0, 1)}, {"\"\xff\n"})),
              ElementsAre("begin \"\xef\xbf\xbd\n at 0 in thread 0", "end at 1 in thread 0"));
}

TEST(PerfettosFormat, SaysWhatHasToBeKnown) {
  Timeline timeline = of({}, {});
  timeline.clock_error_ns = 2'500'000;
  timeline.notes = {"a note"};
  timeline.ranks.front().left_out = 7;
  EXPECT_THAT(
      events_of(timeline),
      ElementsAre("remark a note in job a job", "remark clocks of hosts agree within 2.5 ms in job a job",
                  "remark 7 events of this rank had no room and are not here in rank 3 (here, pid 77)"));
}

}  // namespace
}  // namespace lockstep::view
