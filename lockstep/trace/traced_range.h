// A program's own ranges and counters in the timeline (docs/profiling.md), beside what Lockstep records of itself.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

namespace lockstep {
namespace trace {
class SpanRecorder;
}

/// From its making to its end. Ranges of one thread nest as their objects do.
///
///   { lockstep::TracedRange range("loss"); loss = criterion(output, target); }
///
/// Names are kept once each: 1,024 of up to 56 bytes; what belongs to the data ("batch 17") is no name. Before init(), after the
/// world's end, in a world of one, and where ranks are threads it does nothing. Thread safe; never throws. Cost: some 100 ns.
class TracedRange {
 public:
  explicit TracedRange(std::string_view name) noexcept;
  ~TracedRange();
  TracedRange(const TracedRange&) = delete;
  TracedRange& operator=(const TracedRange&) = delete;

 private:
  std::shared_ptr<trace::SpanRecorder> recorder_;
  std::uint32_t name_ = 0;
  std::uint64_t begin_ns_ = 0;
};

/// The value that something has from now on, "loss" or "queue": a curve in the timeline. As TracedRange otherwise.
void traced_counter(std::string_view name, double value) noexcept;

}  // namespace lockstep
