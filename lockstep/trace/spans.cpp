#include "lockstep/trace/spans.h"

#include <algorithm>
#include <bit>
#include <memory>
#include <utility>

namespace lockstep::trace {
namespace {

using Words = decltype(SpanRings::events)::Words;

// A named operation's thread: this, and its part, operation and dtype, a byte each.
constexpr std::uint32_t first_named_thread = 0xfe000000;

std::mutex& current_mutex() {
  static std::mutex mutex;
  return mutex;
}

std::shared_ptr<SpanRecorder>& current() {
  static std::shared_ptr<SpanRecorder> recorder;
  return recorder;
}

std::string fitting_name(std::string_view name) {
  constexpr std::string_view cut_short = "...";
  if (name.size() <= SpanRings::name_capacity) return std::string(name);
  return std::string(name.substr(0, SpanRings::name_capacity - cut_short.size())).append(cut_short);
}

}  // namespace

std::uint32_t named_thread(const NamedSpan& span) {
  return first_named_thread | std::uint32_t{static_cast<std::uint8_t>(span.part)} << 16U |
         std::uint32_t{static_cast<std::uint8_t>(span.operation)} << 8U |
         static_cast<std::uint8_t>(span.dtype);
}

std::optional<NamedSpan> named_span(const SpanEvent& span) {
  if (span.thread < first_named_thread || span.thread == counter_thread) return std::nullopt;
  const auto byte = [&](unsigned number) { return static_cast<std::uint8_t>(span.thread >> (8U * number)); };
  const NamedSpan named{.part = static_cast<NamedSpan::Part>(byte(2)),
                        .operation = static_cast<Operation>(byte(1)),
                        .dtype = static_cast<Dtype>(byte(0))};
  const bool is_known = named.part <= NamedSpan::Part::whole && named.operation <= Operation::all_to_all &&
                        size_of(named.dtype) != 0;
  return is_known ? std::optional(named) : std::nullopt;
}

bool is_of_thread(const SpanEvent& span) { return span.thread < first_named_thread; }

SpanRecorder::SpanRecorder(SpanRings& rings, std::shared_ptr<const void> memory)
    : rings_(rings), memory_(std::move(memory)) {
  const auto known = read_span_names(rings_);
  for (std::size_t number = 1; number < known.size(); ++number)
    numbers_.emplace(known[number], static_cast<std::uint32_t>(number));
}

std::uint32_t SpanRecorder::number_of(std::string_view name) {
  const std::lock_guard lock(mutex_);
  const auto known = numbers_.find(std::string(name));
  if (known != numbers_.end()) return known->second;
  if (numbers_.size() == SpanRings::most_names || name.empty()) return 0;
  const auto number = static_cast<std::uint32_t>(numbers_.size() + 1);
  SpanRings::Name& entry = rings_.names[number - 1];
  const std::string text = fitting_name(name);
  text.copy(entry.text, text.size());
  entry.bytes.store(static_cast<std::uint32_t>(text.size()), std::memory_order_release);
  numbers_.emplace(name, number);
  return number;
}

void SpanRecorder::record(const SpanEvent& event) {
  auto& ring = rings_.events;
  ring.write(ring.written.fetch_add(1, std::memory_order_relaxed), std::bit_cast<Words>(event));
}

std::shared_ptr<SpanRecorder> current_spans() {
  const std::lock_guard lock(current_mutex());
  return current();
}

void set_current_spans(std::shared_ptr<SpanRecorder> recorder) {
  const std::lock_guard lock(current_mutex());
  current() = std::move(recorder);
}

std::vector<SpanEvent> read_spans(const SpanRings& rings, std::uint64_t& position, std::uint64_t& left_out) {
  const std::uint64_t end = rings.events.written.load(std::memory_order_acquire);
  std::vector<SpanEvent> events;
  for (const Words& words : rings.events.since(position)) events.push_back(std::bit_cast<SpanEvent>(words));
  const std::uint64_t passed = end > position ? end - position : 0;
  left_out += passed > events.size() ? passed - events.size() : 0;
  position = std::max(position, end);
  return events;
}

std::vector<std::string> read_span_names(const SpanRings& rings) {
  std::vector<std::string> names = {"(no room for its name)"};
  for (const SpanRings::Name& name : rings.names) {
    const std::uint32_t bytes = name.bytes.load(std::memory_order_acquire);
    if (bytes == 0) break;
    names.emplace_back(name.text, std::min<std::size_t>(bytes, SpanRings::name_capacity));
  }
  return names;
}

}  // namespace lockstep::trace
