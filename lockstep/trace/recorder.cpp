#include "lockstep/trace/recorder.h"

#include <algorithm>
#include <cstring>

namespace lockstep::trace {

template <class Fill>
void Recorder::write(EventKind kind, Fill fill) {
#ifdef LOCKSTEP_WITHOUT_RECORD
  return;
#endif
  if (ring_ == nullptr) return;
  const std::uint64_t number = ring_->written.fetch_add(1, std::memory_order_relaxed);
  RecordRing::Cell& cell = ring_->cells[number % ring_capacity];
  cell.stamp.store(0, std::memory_order_release);
  cell.event.kind = kind;
  fill(cell.event);
  cell.stamp.store(number + 1, std::memory_order_release);
}

void Recorder::record(const CollectiveEvent& event) {
  write(EventKind::collective, [&](Event& whole) { whole.collective = event; });
}

void Recorder::record(const TrainingStepEvent& event) {
  write(EventKind::training_step, [&](Event& whole) { whole.training_step = event; });
}

std::uint64_t Recorder::position() const {
  return ring_ == nullptr ? 0 : ring_->written.load(std::memory_order_acquire);
}

std::vector<Event> Recorder::since(std::uint64_t position) const {
  std::vector<Event> events;
  const std::uint64_t end = this->position();
  const std::uint64_t oldest = end > ring_capacity ? end - ring_capacity : 0;
  for (std::uint64_t number = std::max(position, oldest); number < end; ++number) {
    const RecordRing::Cell& cell = ring_->cells[number % ring_capacity];
    if (cell.stamp.load(std::memory_order_acquire) != number + 1) continue;
    const Event event = cell.event;
    if (cell.stamp.load(std::memory_order_acquire) == number + 1) events.push_back(event);
  }
  return events;
}

}  // namespace lockstep::trace
