// The record: a ring of events of fixed size, always on. One rank writes, anyone who maps the memory reads,
// also after the writer was killed. Cost of an event: one fetch_add and 72 bytes of stores.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "lockstep/trace/clock.h"
#include "lockstep/trace/event.h"

namespace lockstep::trace {

inline constexpr std::size_t ring_capacity = 4096;

/// In shared memory, zeroed at the start.
struct RecordRing {
  struct Cell {
    std::atomic<std::uint64_t> stamp;  ///< number of the event, from 1; 0 while it is being written
    Event event;
  };
  std::atomic<std::uint64_t> written;
  Cell cells[ring_capacity];
};

class Recorder {
 public:
  /// Borrows `ring`; null records nothing.
  explicit Recorder(RecordRing* ring = nullptr) : ring_(ring) {}

  /// Thread safe, wait-free.
  void record(const CollectiveEvent& event);
  void record(const TrainingStepEvent& event);

  /// Number of events written so far; pass it to since() later.
  std::uint64_t position() const;
  /// Events from `position` on, oldest first, as far as the ring still holds them. An event that is being
  /// overwritten meanwhile is left out.
  std::vector<Event> since(std::uint64_t position) const;

 private:
  template <class Fill>
  void write(EventKind kind, Fill fill);
  RecordRing* ring_;
};

}  // namespace lockstep::trace
