#include "lockstep/trace/spans.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "lockstep/trace/traced_range.h"

namespace lockstep::trace {
namespace {

using ::testing::EndsWith;
using ::testing::IsEmpty;
using ::testing::SizeIs;

struct Rings {
  std::unique_ptr<SpanRings> rings = std::make_unique<SpanRings>();
  std::uint64_t position = 0, left_out = 0;
  std::vector<SpanEvent> read() { return read_spans(*rings, position, left_out); }
};

TEST(Spans, ANameHasOneNumberAndIsCutWhereItIsTooLong) {
  const Rings made;
  SpanRecorder recorder(*made.rings, nullptr);
  EXPECT_EQ(recorder.number_of("loss"), 1U);
  EXPECT_EQ(recorder.number_of(std::string(100, 'x')), 2U);
  EXPECT_EQ(recorder.number_of("loss"), 1U);
  const auto names = read_span_names(*made.rings);
  ASSERT_THAT(names, SizeIs(3));
  EXPECT_EQ(names[1], "loss");
  EXPECT_THAT(names[2], EndsWith("xxx..."));
}

TEST(Spans, MoreNamesThanThereIsRoomForAreZero) {
  const Rings made;
  SpanRecorder recorder(*made.rings, nullptr);
  for (std::size_t i = 0; i < SpanRings::most_names; ++i)
    EXPECT_EQ(recorder.number_of(std::to_string(i)), i + 1);
  EXPECT_EQ(recorder.number_of("one more"), 0U);
}

TEST(Spans, RangesNestAndTellTheirThreadApart) {
  Rings made;
  set_current_spans(std::make_shared<SpanRecorder>(*made.rings, nullptr));
  {
    const TracedRange outer("outer");
    const TracedRange inner("inner");
  }
  std::thread([] { const TracedRange other("outer"); }).join();
  traced_counter("queue", 3.5);
  set_current_spans(nullptr);
  const auto events = made.read();
  ASSERT_THAT(events, SizeIs(4));
  EXPECT_GE(events[0].begin_ns, events[1].begin_ns);  // inner ends first
  EXPECT_LE(events[0].end_ns, events[1].end_ns);
  EXPECT_EQ(events[0].thread, events[1].thread);
  EXPECT_NE(events[2].thread, events[1].thread);
  EXPECT_EQ(events[2].name, events[1].name);
  EXPECT_EQ(events[3].thread, counter_thread);
  EXPECT_EQ(events[3].value, 3.5);
}

TEST(Spans, WithoutAWorldNothingIsRecorded) {
  const TracedRange range("nothing");
  traced_counter("nothing", 1);
  EXPECT_EQ(current_spans(), nullptr);
}

TEST(Spans, WhatIsOverwrittenIsCounted) {
  Rings made;
  SpanRecorder recorder(*made.rings, nullptr);
  for (std::size_t i = 0; i < ring_capacity + 5; ++i) recorder.record({});
  EXPECT_THAT(made.read(), SizeIs(ring_capacity));
  EXPECT_EQ(made.left_out, 5U);
  EXPECT_THAT(made.read(), IsEmpty());
  EXPECT_EQ(made.left_out, 5U);
}

TEST(NamedSpans, SayWhatTheyAreAndAreNoThreads) {
  for (const auto part : {NamedSpan::Part::negotiation, NamedSpan::Part::whole}) {
    SpanEvent span{};
    span.thread = named_thread({part, Operation::all_to_all, Dtype::complex128});
    const auto named = named_span(span);
    ASSERT_TRUE(named);
    EXPECT_EQ(named->part, part);
    EXPECT_EQ(named->operation, Operation::all_to_all);
    EXPECT_EQ(named->dtype, Dtype::complex128);
    EXPECT_FALSE(is_of_thread(span));
  }
  for (const std::uint32_t thread : {0U, 1000000U, counter_thread, 0xfe020000U, 0xfe000b00U, 0xfe0000ffU}) {
    SpanEvent span{};
    span.thread = thread;
    EXPECT_FALSE(named_span(span)) << thread;
    EXPECT_EQ(is_of_thread(span), thread <= 1000000U);
  }
}

}  // namespace
}  // namespace lockstep::trace
