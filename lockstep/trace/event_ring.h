// The last events of some kind, in shared memory: one process writes, anyone who maps the memory reads, also after the writer
// was killed.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace lockstep::trace {

inline constexpr std::size_t ring_capacity = 4096;

/// The last events, each of so many words. Words are stored one after the other, so that whoever reads an
/// event's number before and after it has all of that event.
template <std::size_t words>
struct EventRing {
  using Words = std::array<std::uint64_t, words>;
  struct Cell {
    std::atomic<std::uint64_t> number;  ///< of the event, from 1; 0 while it is being written
    std::array<std::atomic<std::uint64_t>, words> event;
  };
  std::atomic<std::uint64_t> written;
  alignas(64) std::array<Cell, ring_capacity> cells;

  void write(std::uint64_t index, const Words& event);
  /// Events from `position` on, oldest first, as far as the ring still holds them.
  std::vector<Words> since(std::uint64_t position) const;
};

template <std::size_t words>
void EventRing<words>::write(std::uint64_t index, const Words& event) {
  Cell& cell = cells[index % ring_capacity];
  cell.number.store(0, std::memory_order_relaxed);
  for (std::size_t word = 0; word < words; ++word)
    cell.event[word].store(event[word], std::memory_order_release);
  cell.number.store(index + 1, std::memory_order_release);
}

template <std::size_t words>
std::vector<typename EventRing<words>::Words> EventRing<words>::since(std::uint64_t position) const {
  std::vector<Words> events;
  const std::uint64_t end = written.load(std::memory_order_acquire);
  const std::uint64_t oldest = end > ring_capacity ? end - ring_capacity : 0;
  for (std::uint64_t index = std::max(position, oldest); index < end; ++index) {
    const Cell& cell = cells[index % ring_capacity];
    if (cell.number.load(std::memory_order_acquire) != index + 1) continue;
    Words event;
    for (std::size_t word = 0; word < words; ++word)
      event[word] = cell.event[word].load(std::memory_order_acquire);
    if (cell.number.load(std::memory_order_relaxed) == index + 1) events.push_back(event);
  }
  return events;
}

}  // namespace lockstep::trace
