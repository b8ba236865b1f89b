// The record, always on: a ring of the collectives that are over and one of training steps, in shared memory.
// One rank writes; anyone who maps the memory reads, also after the writer was killed.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "lockstep/trace/clock.h"
#include "lockstep/trace/event.h"
#include "lockstep/trace/event_ring.h"
#include "lockstep/trace/totals.h"

namespace lockstep::trace {

/// In shared memory, zeroed at the start.
struct RecordRings {
  static constexpr std::size_t most_names = 64;

  EventRing<7> collectives;  // a cache line each
  EventRing<sizeof(TrainingStepEvent) / sizeof(std::uint64_t)> steps;
  // The algorithms that occurred, in the order in which they first did.
  std::atomic<std::uint64_t> name_count;
  std::array<std::array<char, sizeof(CollectiveEvent::algorithm)>, most_names> names;
  StepSums step_sums;
};
static_assert(sizeof(decltype(RecordRings::collectives)::Cell) == 64);

class Recorder {
 public:
  /// Borrows `rings`; null records nothing.
  explicit Recorder(RecordRings* rings = nullptr) : rings_(rings) {}

  /// What stands for an algorithm in the record: the same each time. One thread at a time.
  std::uint64_t number_of(std::string_view algorithm);
  /// `algorithm`: its number_of(). One thread at a time (the progress lock). Cost: stores to one cache line,
  /// which no other rank looks at meanwhile.
  void record(const CompletedCollective& call, std::uint64_t algorithm);
  void record(const CollectiveEvent& event);
  /// Thread safe, wait-free.
  void record(const TrainingStepEvent& event);

  /// How many there were so far; pass it to collectives_since() later.
  std::uint64_t collectives() const;
  std::uint64_t steps() const;
  /// Events from `position` on, oldest first, as far as the ring still holds them. An event that is being
  /// overwritten meanwhile is left out.
  std::vector<CollectiveEvent> collectives_since(std::uint64_t position) const;
  std::vector<TrainingStepEvent> steps_since(std::uint64_t position) const;

 private:
  RecordRings* rings_;
};

}  // namespace lockstep::trace
