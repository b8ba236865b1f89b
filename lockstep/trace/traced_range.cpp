#include "lockstep/trace/traced_range.h"

#include <atomic>

#include "lockstep/trace/clock.h"
#include "lockstep/trace/spans.h"

namespace lockstep {
namespace {

std::uint32_t number_of_this_thread() {
  static std::atomic<std::uint32_t> threads = 0;
  thread_local const std::uint32_t number = threads.fetch_add(1, std::memory_order_relaxed);
  return number;
}

}  // namespace

TracedRange::TracedRange(std::string_view name) noexcept {
  try {
    recorder_ = trace::current_spans();
    if (recorder_ != nullptr) name_ = recorder_->number_of(name);
  } catch (...) {  // no memory: then there is none in the timeline
    recorder_.reset();
  }
  begin_ns_ = trace::now_ns();
}

TracedRange::~TracedRange() {
  if (recorder_ == nullptr) return;
  recorder_->record({.begin_ns = begin_ns_,
                     .end_ns = trace::now_ns(),
                     .value = 0,
                     .name = name_,
                     .thread = number_of_this_thread()});
}

void traced_counter(std::string_view name, double value) noexcept try {
  const auto recorder = trace::current_spans();
  if (recorder == nullptr) return;
  const std::uint64_t now = trace::now_ns();
  recorder->record({.begin_ns = now,
                    .end_ns = now,
                    .value = value,
                    .name = recorder->number_of(name),
                    .thread = trace::counter_thread});
} catch (...) {  // as above
}

}  // namespace lockstep
