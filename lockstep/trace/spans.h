// What a program does between its calls, for the timeline: ranges of time and counters, with names of its own. A ring in
// shared memory, as that of calls is (recorder.h): one process writes, anyone who maps the memory reads.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "lockstep/base/signature.h"
#include "lockstep/trace/event_ring.h"

namespace lockstep::trace {

/// As it is written.
struct SpanEvent {
  std::uint64_t begin_ns;  ///< by now_ns()
  std::uint64_t end_ns;    ///< of a counter: when it was set
  double value;            ///< of a counter; of a named operation its elements
  std::uint32_t name;      ///< of SpanRings::names, from 1; 0: there was no room for it
  std::uint32_t
      thread;  ///< of the process, from 0 in the order of their first ranges; else counter_thread or named_thread()
};
inline constexpr std::uint32_t counter_thread = ~std::uint32_t{0};

/// A range of a named operation, which has no thread: from its submission on this rank until all ranks had submitted it, or
/// until it was complete.
struct NamedSpan {
  enum class Part : std::uint8_t { negotiation, whole };
  Part part;
  Operation operation;
  Dtype dtype;
};
std::uint32_t named_thread(const NamedSpan& span);
/// Nothing for other spans.
std::optional<NamedSpan> named_span(const SpanEvent& span);
/// Whether it is a range of one of the program's threads.
bool is_of_thread(const SpanEvent& span);

/// In shared memory, zeroed at the start.
struct SpanRings {
  static constexpr std::size_t most_names = 1024;
  static constexpr std::size_t name_capacity = 56;
  struct Name {
    std::atomic<std::uint32_t> bytes;  ///< 0: not there yet
    char text[name_capacity];
  };

  EventRing<sizeof(SpanEvent) / sizeof(std::uint64_t)> events;
  std::array<Name, most_names> names;
};

/// A process's. Thread safe.
class SpanRecorder {
 public:
  /// Goes on in `rings`, with the names that stand there. `memory` keeps them where they are.
  SpanRecorder(SpanRings& rings, std::shared_ptr<const void> memory);

  /// The number that stands for it: the same each time. Cost: a lock and a look into a table.
  std::uint32_t number_of(std::string_view name);
  /// Wait-free.
  void record(const SpanEvent& event);

 private:
  SpanRings& rings_;
  std::shared_ptr<const void> memory_;
  std::mutex mutex_;
  std::unordered_map<std::string, std::uint32_t> numbers_;
};

/// Of this process, while its world lives; null before and afterwards, and where ranks are threads.
std::shared_ptr<SpanRecorder> current_spans();
void set_current_spans(std::shared_ptr<SpanRecorder> recorder);

/// Events from `position` on, the oldest first, as far as the ring still holds them; `left_out` grows by those that it does not.
/// Afterwards `position` is behind them.
std::vector<SpanEvent> read_spans(const SpanRings& rings, std::uint64_t& position, std::uint64_t& left_out);
/// By number; the first is that of 0. Names that are longer than there is room for end in "...".
std::vector<std::string> read_span_names(const SpanRings& rings);

}  // namespace lockstep::trace
