#include "lockstep/view/profile/page_record.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/trace/recorder.h"

namespace lockstep::view {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

void enter(const ControlPage& page, int local_rank, const trace::GroupEntry& group) {
  trace::GroupNames(&page.groups(local_rank)).enter(group);
}

TEST(ReadRecord, TellsWhatThePageHolds) {
  const ControlPage page = ControlPage::in_process(2);
  page.status(1).pid.store(4242);
  page.status(1).said_goodbye.store(1);
  enter(page, 0, {.number = 7, .ranks = 3, .rank = 2, .name = "world/1,5,0"});
  enter(page, 1, {.number = 7, .ranks = 3, .rank = 0, .name = "world/1,5,0"});
  trace::OpenCalls(&page.open_calls(1)).open({.sequence = 3});
  trace::CollectiveEvent event{};
  event.sequence = 2;
  trace::Recorder(&page.record(1)).record(event);
  trace::Recorder(&page.record(1)).record(trace::TrainingStepEvent{});
  page.first_cause().set({ErrorCode::timeout, 1, 0, "late"});

  const trace::FlightRecord record = read_record(page);
  ASSERT_THAT(record.ranks, SizeIs(2));
  EXPECT_FALSE(record.ranks[0].joined);
  EXPECT_TRUE(record.ranks[1].joined);
  EXPECT_TRUE(record.ranks[1].left);
  EXPECT_EQ(record.ranks[1].pid, 4242);
  EXPECT_EQ(record.ranks[1].open_calls.at(0).sequence, 3U);
  ASSERT_THAT(record.ranks[1].events, SizeIs(1));
  EXPECT_EQ(record.ranks[1].events[0].sequence, 2U);
  ASSERT_THAT(record.groups, SizeIs(1));
  EXPECT_EQ(record.groups[0].name, "world/1,5,0");
  EXPECT_THAT(record.groups[0].members, ElementsAre(1, -1, 0));
  EXPECT_EQ(record.first_cause->culprit, 1);
}

TEST(ReadRecord, RanksOfSeveralHostsSayWhoTheyAre) {
  const ControlPage page = ControlPage::in_process(2);
  enter(page, 0, {.number = 7, .ranks = 6, .rank = 3, .name = "world"});
  enter(page, 1, {.number = 7, .ranks = 6, .rank = 4, .name = "world"});
  const trace::FlightRecord record = read_record(page);
  EXPECT_EQ(record.ranks[0].rank, 3);
  EXPECT_EQ(record.ranks[1].rank, 4);
  EXPECT_THAT(record.groups.at(0).members, ElementsAre(-1, -1, -1, 3, 4, -1));
}

TEST(ReadRecord, WhatMakesNoSenseIsLeftOutSoThatTheRestCanBeRead) {
  const ControlPage page = ControlPage::in_process(1);
  enter(page, 0, {.number = 7, .ranks = 2'000'000'000, .rank = 1, .name = "huge"});
  enter(page, 0, {.number = 8, .ranks = 2, .rank = -1, .name = "negative"});
  trace::OpenCalls calls(&page.open_calls(0));
  calls.open({.signature = {.operation = static_cast<Operation>(99)}});
  calls.open({.signature = {.dtype = static_cast<Dtype>(99)}});
  calls.open({.peer = -2});
  calls.open({.awaited_count = 1, .awaited = {-7}});
  calls.open({.sequence = 5});
  trace::CollectiveEvent event{};
  event.reduce_op = static_cast<ReduceOp>(99);
  trace::Recorder(&page.record(0)).record(event);
  page.first_cause().set({static_cast<ErrorCode>(99), 1 << 20, -5, "odd"});

  const trace::FlightRecord record = read_record(page);
  EXPECT_THAT(record.groups, IsEmpty());
  EXPECT_THAT(record.ranks[0].events, IsEmpty());
  ASSERT_THAT(record.ranks[0].open_calls, SizeIs(1));
  EXPECT_EQ(record.ranks[0].open_calls[0].sequence, 5U);
  const std::string text = record.to_text();
  EXPECT_EQ(trace::FlightRecord::parse(text, "it").to_text(), text);
}

TEST(ReadRecord, TotalsAreThoseOfAllCalls) {
  const ControlPage page = ControlPage::in_process(1);
  trace::Totals totals(&page.totals(0));
  const trace::CallClass of{.group = 7, .operation = Operation::all_reduce, .size_bin = 2};
  trace::CompletedCollective call{};
  call.begin_ns = 100;
  call.arrived_ns = 110;
  call.end_ns = 130;
  totals.add(of, call, 8, 25);
  totals.add(of, call, 8, 0);
  totals.add_blocked(of, 5);
  page.status(0).joined_at_ns.store(90);
  page.status(0).left_at_ns.store(190);
  const trace::FlightRank rank = read_record(page).ranks.at(0);
  ASSERT_THAT(rank.totals, SizeIs(1));
  EXPECT_EQ(rank.totals[0].of, of);
  const trace::CallTotals& sums = rank.totals[0].totals;
  EXPECT_EQ(sums.calls, 2U);
  EXPECT_EQ(sums.bytes, 16U);
  EXPECT_EQ(sums.ns, 60U);
  EXPECT_EQ(sums.waited_ns, 20U);
  EXPECT_EQ(sums.blocked_ns, 30U);
  EXPECT_EQ(rank.costs.left_at_ns, 190U);
}

}  // namespace
}  // namespace lockstep::view
