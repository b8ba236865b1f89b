#include "lockstep/view/profile/timeline_spool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/view/profile/time_slices.h"

namespace lockstep::view {
namespace {

using ::testing::SizeIs;

void call(const ControlPage& page, int place, std::uint64_t sequence, std::uint64_t apart_ns = 1) {
  trace::CollectiveEvent event{};
  event.sequence = sequence;
  event.begin_ns = 1000 + sequence * apart_ns;
  event.end_ns = event.begin_ns + 1;
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
  EXPECT_THAT(spool.copy().at(0).calls, SizeIs(1));
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

TEST(TimelineSpool, KeepsTheSameSlicesOfTimeOfAllRanks) {
  const ControlPage page = ControlPage::in_process(2);
  TimelineSpool spool(page, {0, 1}, 200);
  for (std::uint64_t i = 0; i < 1000; ++i) {
    for (const int place : {0, 1}) call(page, place, i, view::slice_ns / 10);
  }
  const auto ranks = spool.take();
  ASSERT_THAT(ranks[0].calls, SizeIs(ranks[1].calls.size()));
  EXPECT_GE(ranks[0].calls.size(), 30U);
  EXPECT_LE(ranks[0].calls.size(), 100U);
  std::size_t neighbours = 0;
  for (std::size_t i = 0; i < ranks[0].calls.size(); ++i) {
    EXPECT_EQ(ranks[0].calls[i].sequence, ranks[1].calls[i].sequence);
    if (i > 0 && ranks[0].calls[i].sequence == ranks[0].calls[i - 1].sequence + 1) ++neighbours;
  }
  EXPECT_GE(neighbours, ranks[0].calls.size() * 8 / 10);  // slices are whole
}

}  // namespace
}  // namespace lockstep::view
