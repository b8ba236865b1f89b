#include "lockstep/launch/timeline_spool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::launch {
namespace {

using ::testing::SizeIs;

void call(const ControlPage& page, int place, std::uint64_t sequence) {
  trace::CollectiveEvent event{};
  event.sequence = sequence;
  event.begin_ns = 1000 + sequence;
  event.end_ns = 1001 + sequence;
  trace::Recorder(&page.record(place)).record(event);
}

TEST(TimelineSpool, HasTheEventsOfEachRankOnce) {
  const ControlPage page = ControlPage::in_process(2);
  TimelineSpool spool(page, {4, 7});
  call(page, 0, 1);
  trace::TrainingStepEvent step{};
  step.step = 3;
  trace::Recorder(&page.record(1)).record(step);
  trace::SpanRecorder spans(page.spans(1), nullptr);
  spans.record({.begin_ns = 1, .end_ns = 2, .value = 0, .name = spans.number_of("loss"), .thread = 0});
  const auto ranks = spool.take();
  ASSERT_THAT(ranks, SizeIs(2));
  EXPECT_EQ(ranks[0].rank, 4);
  EXPECT_THAT(ranks[0].calls, SizeIs(1));
  EXPECT_EQ(ranks[1].steps.at(0).step, 3U);
  EXPECT_EQ(ranks[1].span_names.at(ranks[1].spans.at(0).name), "loss");
  EXPECT_EQ(ranks[0].left_out + ranks[1].left_out, 0U);
}

TEST(TimelineSpool, CountsWhatWasOverwrittenBeforeItWasRead) {
  const ControlPage page = ControlPage::in_process(1);
  TimelineSpool spool(page, {0});
  for (std::uint64_t i = 0; i < trace::ring_capacity + 10; ++i) call(page, 0, i);
  const auto ranks = spool.take();
  EXPECT_THAT(ranks[0].calls, SizeIs(trace::ring_capacity));
  EXPECT_EQ(ranks[0].left_out, 10U);
}

TEST(TimelineSpool, OfMoreThanThereIsRoomForIsThinnedOutFromBeginningToEnd) {
  const ControlPage page = ControlPage::in_process(1);
  TimelineSpool spool(page, {0}, 100);
  for (std::uint64_t i = 0; i < 1000; ++i) call(page, 0, i);
  const auto ranks = spool.take();
  EXPECT_LE(ranks[0].calls.size(), 100U);
  EXPECT_GE(ranks[0].calls.size(), 50U);
  EXPECT_EQ(ranks[0].calls.size() + ranks[0].left_out, 1000U);
  EXPECT_EQ(ranks[0].calls.front().sequence, 0U);
  EXPECT_GE(ranks[0].calls.back().sequence, 980U);
}

}  // namespace
}  // namespace lockstep::launch
