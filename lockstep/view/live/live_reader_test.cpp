#include "lockstep/view/live/live_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "lockstep/trace/recorder.h"

namespace lockstep::view {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr std::uint32_t world = 7;

/// Of two ranks that know each other.
ControlPage page_of_two() {
  ControlPage page = ControlPage::in_process(2);
  for (int rank = 0; rank < 2; ++rank)
    trace::GroupNames(&page.groups(rank)).enter({.number = world, .ranks = 2, .rank = rank, .name = "world"});
  return page;
}

void come(const ControlPage& page, int place, std::uint64_t sequence, std::uint64_t begin_ns,
          Operation operation = Operation::all_reduce) {
  trace::CollectiveEvent event{};
  event.sequence = sequence;
  event.group = world;
  event.operation = operation;
  event.begin_ns = begin_ns;
  event.end_ns = begin_ns + 1;
  trace::Recorder(&page.record(place)).record(event);
}

TEST(LiveReader, CountsWhoCameLastAndHowLate) {
  const ControlPage page = page_of_two();
  LiveReader reader(page);
  come(page, 0, 0, 100);
  come(page, 1, 0, 130);
  come(page, 0, 1, 250);
  come(page, 1, 1, 200);
  come(page, 0, 2, 300);  // rank 1 is not there yet
  LiveHost host = reader.look();
  EXPECT_EQ(host.ranks[0].last_arrivals, 1U);
  EXPECT_THAT(host.ranks[0].late, ElementsAre(50));
  EXPECT_THAT(host.ranks[1].late, ElementsAre(30));
  come(page, 1, 2, 307);
  host = reader.look();
  EXPECT_EQ(host.ranks[1].last_arrivals, 2U);
  EXPECT_THAT(host.ranks[1].late, ElementsAre(7));
  EXPECT_THAT(host.ranks[0].late, IsEmpty());
}

TEST(LiveReader, OfMessagesNobodyIsLast) {
  const ControlPage page = page_of_two();
  LiveReader reader(page);
  come(page, 0, 0, 100, Operation::send);
  come(page, 1, 0, 130, Operation::receive);
  const LiveHost host = reader.look();
  EXPECT_EQ(host.ranks[0].last_arrivals + host.ranks[1].last_arrivals, 0U);
}

TEST(LiveReader, WhereRanksAreOnOtherHostsNobodyIsLast) {
  const ControlPage page = ControlPage::in_process(1);
  trace::GroupNames(&page.groups(0)).enter({.number = world, .ranks = 2, .rank = 1, .name = "world"});
  LiveReader reader(page);
  come(page, 0, 0, 100);
  come(page, 0, 0, 130);
  EXPECT_EQ(reader.look().ranks[0].last_arrivals, 0U);
}

TEST(LiveReader, FromNowOnCountsNothingOfBefore) {
  const ControlPage page = page_of_two();
  come(page, 0, 0, 100);
  come(page, 1, 0, 130);
  LiveReader reader(page, {}, 0, LiveReader::From::now);
  EXPECT_EQ(reader.look().ranks[1].last_arrivals, 0U);
}

TEST(LiveReader, HasCountersAsLastSetAlsoWhenTheRingHasForgottenThem) {
  const ControlPage page = ControlPage::in_process(1);
  trace::SpanRecorder spans(page.spans(0), nullptr);
  const auto set = [&](const char* name, double value) {
    spans.record({.begin_ns = 1,
                  .end_ns = 1,
                  .value = value,
                  .name = spans.number_of(name),
                  .thread = trace::counter_thread});
  };
  LiveReader reader(page);
  set("images/s", 10);
  set("images/s", 20.5);
  (void)reader.look();
  for (std::size_t i = 0; i < trace::ring_capacity; ++i) set("loss", static_cast<double>(i));
  const LiveHost host = reader.look();
  ASSERT_EQ(host.ranks[0].counters.size(), 2U);
  EXPECT_EQ(host.ranks[0].counters[0].name, "images/s");
  EXPECT_EQ(host.ranks[0].counters[0].value, 20.5);
  EXPECT_EQ(host.ranks[0].counters[1].value, trace::ring_capacity - 1);
}

TEST(LiveReader, KnowsMemoryAndTimeOfAProcess) {
  const ControlPage page = ControlPage::in_process(2);
  page.status(0).pid.store(::getpid());
  page.status(1).user_ns.store(5'000);
  LiveReader reader(page);
  const LiveHost host = reader.look();
  EXPECT_GT(host.ranks[0].resident_bytes, 100'000U);
  EXPECT_EQ(host.ranks[1].resident_bytes, 0U);
  EXPECT_EQ(host.ranks[1].user_ns, 5'000U);
  EXPECT_TRUE(host.record.goes_on);
}

}  // namespace
}  // namespace lockstep::view
