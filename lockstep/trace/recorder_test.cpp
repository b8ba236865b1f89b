#include "lockstep/trace/recorder.h"

#include <gtest/gtest.h>

#include <memory>
#include <thread>

namespace lockstep::trace {
namespace {

CollectiveEvent event_of(std::uint64_t sequence) {
  CollectiveEvent event{};
  event.sequence = sequence;
  event.elements = ~sequence;
  return event;
}

TEST(Recorder, KeepsTheLastEventsInOrder) {
  const auto ring = std::make_unique<RecordRing>();
  Recorder recorder(ring.get());
  const std::uint64_t count = ring_capacity + 100;
  for (std::uint64_t number = 0; number < count; ++number) recorder.record(event_of(number));
  const auto events = recorder.since(0);
  ASSERT_EQ(events.size(), ring_capacity);
  EXPECT_EQ(events.front().collective.sequence, 100U);
  EXPECT_EQ(events.back().collective.sequence, count - 1);
  EXPECT_EQ(recorder.since(recorder.position() - 3).size(), 3U);
  EXPECT_TRUE(recorder.since(recorder.position()).empty());
}

TEST(Recorder, WithoutARingRecordsNothing) {
  Recorder recorder;
  recorder.record(event_of(1));
  EXPECT_EQ(recorder.position(), 0U);
  EXPECT_TRUE(recorder.since(0).empty());
}

TEST(Recorder, TakesEventsFromSeveralThreads) {
  const auto ring = std::make_unique<RecordRing>();
  Recorder recorder(ring.get());
  std::vector<std::thread> threads;
  for (std::uint64_t thread = 0; thread < 3; ++thread) {
    threads.emplace_back([&, thread] {
      for (std::uint64_t number = 0; number < 1000; ++number)
        recorder.record(event_of(thread * 1000 + number));
    });
  }
  for (auto& thread : threads) thread.join();
  const auto events = recorder.since(0);
  ASSERT_EQ(events.size(), 3000U);
  std::vector<bool> seen(3000);
  for (const Event& event : events) {
    EXPECT_EQ(event.kind, EventKind::collective);
    EXPECT_EQ(event.collective.elements, ~event.collective.sequence);
    seen[event.collective.sequence] = true;
  }
  EXPECT_EQ(std::count(seen.begin(), seen.end(), true), 3000);
}

}  // namespace
}  // namespace lockstep::trace
