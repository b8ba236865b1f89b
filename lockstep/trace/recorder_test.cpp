#include "lockstep/trace/recorder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <thread>

namespace lockstep::trace {
namespace {

CollectiveEvent collective(std::uint64_t sequence) {
  CollectiveEvent event{};
  event.sequence = sequence;
  return event;
}

TrainingStepEvent step(std::uint64_t number) {
  TrainingStepEvent event{};
  event.step = number;
  event.gradient_bytes = ~number;
  return event;
}

TEST(Recorder, KeepsTheLastEventsInOrder) {
  const auto rings = std::make_unique<RecordRings>();
  Recorder recorder(rings.get());
  const std::uint64_t count = ring_capacity + 100;
  for (std::uint64_t number = 0; number < count; ++number) recorder.record(collective(number));
  const auto events = recorder.collectives_since(0);
  ASSERT_EQ(events.size(), ring_capacity);
  EXPECT_EQ(events.front().sequence, 100U);
  EXPECT_EQ(events.back().sequence, count - 1);
  EXPECT_EQ(recorder.collectives_since(recorder.collectives() - 3).size(), 3U);
  EXPECT_TRUE(recorder.collectives_since(recorder.collectives()).empty());
}

TEST(Recorder, GivesBackWhatItWasTold) {
  const auto rings = std::make_unique<RecordRings>();
  Recorder recorder(rings.get());
  const CompletedCollective call{.sequence = 1,
                                 .elements = ~std::uint64_t{2},
                                 .begin_ns = 3,
                                 .arrived_ns = 4,
                                 .end_ns = ~std::uint64_t{5},
                                 .group = 0xfedcba98,
                                 .operation = Operation::all_to_all,
                                 .dtype = Dtype::bf16,
                                 .reduce_op = ReduceOp::custom,
                                 .failed = 1};
  recorder.record(call, recorder.number_of("tree"));
  recorder.record(call, recorder.number_of("ring"));
  recorder.record(call, recorder.number_of("tree"));
  recorder.record(call, 0);
  const auto events = recorder.collectives_since(0);
  ASSERT_EQ(events.size(), 4U);
  for (const CollectiveEvent& event : events) {
    EXPECT_EQ(event.sequence, call.sequence);
    EXPECT_EQ(event.elements, call.elements);
    EXPECT_EQ(event.begin_ns, call.begin_ns);
    EXPECT_EQ(event.arrived_ns, call.arrived_ns);
    EXPECT_EQ(event.end_ns, call.end_ns);
    EXPECT_EQ(event.group, call.group);
    EXPECT_EQ(event.operation, call.operation);
    EXPECT_EQ(event.dtype, call.dtype);
    EXPECT_EQ(event.reduce_op, call.reduce_op);
    EXPECT_EQ(event.failed, call.failed);
  }
  EXPECT_STREQ(events[0].algorithm, "tree");
  EXPECT_STREQ(events[1].algorithm, "ring");
  EXPECT_STREQ(events[2].algorithm, "tree");
  EXPECT_STREQ(events[3].algorithm, "");
  EXPECT_EQ(recorder.steps(), 0U);
}

TEST(Recorder, MoreAlgorithmsThanItHasRoomForHaveNoName) {
  const auto rings = std::make_unique<RecordRings>();
  Recorder recorder(rings.get());
  for (std::size_t name = 0; name <= RecordRings::most_names; ++name)
    recorder.record({}, recorder.number_of("algorithm " + std::to_string(name)));
  const auto events = recorder.collectives_since(0);
  EXPECT_STREQ(events.at(RecordRings::most_names - 1).algorithm, "algorithm 63");
  EXPECT_STREQ(events.at(RecordRings::most_names).algorithm, "");
  EXPECT_EQ(recorder.number_of("algorithm 0"), 1U);
}

TEST(Recorder, WithoutRingsRecordsNothing) {
  Recorder recorder;
  recorder.record(collective(1));
  recorder.record(step(1));
  EXPECT_EQ(recorder.collectives(), 0U);
  EXPECT_EQ(recorder.steps(), 0U);
  EXPECT_TRUE(recorder.collectives_since(0).empty());
  EXPECT_TRUE(recorder.steps_since(0).empty());
}

TEST(Recorder, TakesStepsFromSeveralThreads) {
  const auto rings = std::make_unique<RecordRings>();
  Recorder recorder(rings.get());
  std::vector<std::thread> threads;
  for (std::uint64_t thread = 0; thread < 3; ++thread) {
    threads.emplace_back([&, thread] {
      for (std::uint64_t number = 0; number < 1000; ++number) recorder.record(step(thread * 1000 + number));
    });
  }
  for (auto& thread : threads) thread.join();
  const auto events = recorder.steps_since(0);
  ASSERT_EQ(events.size(), 3000U);
  std::vector<bool> seen(3000);
  for (const TrainingStepEvent& event : events) {
    EXPECT_EQ(event.gradient_bytes, ~event.step);
    seen[event.step] = true;
  }
  EXPECT_EQ(std::count(seen.begin(), seen.end(), true), 3000);
}

TEST(Recorder, WhoeverReadsMeanwhileHasWholeEvents) {
  const auto rings = std::make_unique<RecordRings>();
  Recorder recorder(rings.get());
  std::atomic<bool> is_over = false;
  std::thread writer([&] {
    for (std::uint64_t number = 1; number < 20 * ring_capacity; ++number) {
      CompletedCollective call{};
      call.sequence = call.elements = call.begin_ns = call.end_ns = number;
      recorder.record(call, 0);
    }
    is_over = true;
  });
  std::uint64_t read = 0;
  while (!is_over || read == 0) {
    for (const CollectiveEvent& event : recorder.collectives_since(0)) {
      ASSERT_EQ(event.elements, event.sequence);
      ASSERT_EQ(event.end_ns, event.sequence);
      ++read;
    }
  }
  writer.join();
}

}  // namespace
}  // namespace lockstep::trace
