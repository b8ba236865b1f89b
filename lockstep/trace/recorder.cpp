#include "lockstep/trace/recorder.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <span>

#include "lockstep/trace/record_switch.h"

namespace lockstep::trace {
namespace {

using CollectiveWords = decltype(RecordRings::collectives)::Words;
using StepWords = decltype(RecordRings::steps)::Words;

/// Makes the compiler read this value by itself. Read together with its neighbours, as one wide word, it
/// would have to wait until all of them, which were just stored one by one, are in the cache.
template <class Value>
std::uint64_t alone(Value value) {
  auto word = static_cast<std::uint64_t>(value);
  asm("" : "+r"(word));
  return word;
}

CollectiveWords pack(const CompletedCollective& call, std::uint64_t algorithm) {
  return {alone(call.sequence),
          alone(call.elements),
          alone(call.begin_ns),
          alone(call.arrived_ns),
          alone(call.end_ns),
          alone(call.group) | alone(call.operation) << 32 | alone(call.dtype) << 40 |
              alone(call.reduce_op) << 48 | alone(call.failed) << 56,
          algorithm};
}

CompletedCollective unpack(const CollectiveWords& words) {
  const std::uint64_t rest = words[5];
  return {.sequence = words[0],
          .elements = words[1],
          .begin_ns = words[2],
          .arrived_ns = words[3],
          .end_ns = words[4],
          .group = static_cast<std::uint32_t>(rest),
          .operation = static_cast<Operation>(rest >> 32 & 0xff),
          .dtype = static_cast<Dtype>(rest >> 40 & 0xff),
          .reduce_op = static_cast<ReduceOp>(rest >> 48 & 0xff),
          .failed = static_cast<std::uint8_t>(rest >> 56)};
}

}  // namespace

std::uint64_t Recorder::number_of(std::string_view algorithm) {
  if (rings_ == nullptr || algorithm.empty()) return 0;
  std::array<char, sizeof(CollectiveEvent::algorithm)> name{};
  algorithm.copy(name.data(), name.size());
  const std::uint64_t count = rings_->name_count.load(std::memory_order_relaxed);
  const auto known = std::span(rings_->names).first(std::min<std::uint64_t>(count, RecordRings::most_names));
  const auto found = std::find(known.begin(), known.end(), name);
  const std::uint64_t number = static_cast<std::uint64_t>(found - known.begin()) + 1;
  if (found != known.end()) return number;
  if (known.size() == RecordRings::most_names) return 0;
  rings_->names[known.size()] = name;
  rings_->name_count.store(number, std::memory_order_release);
  return number;
}

void Recorder::record(const CompletedCollective& call, std::uint64_t algorithm) {
  if (!record_is_on || rings_ == nullptr) return;
  auto& ring = rings_->collectives;
  const std::uint64_t index = ring.written.load(std::memory_order_relaxed);
  ring.write(index, pack(call, algorithm));
  ring.written.store(index + 1, std::memory_order_release);
}

void Recorder::record(const CollectiveEvent& event) {
  record(event, number_of({event.algorithm, ::strnlen(event.algorithm, sizeof(event.algorithm))}));
}

void Recorder::record(const TrainingStepEvent& event) {
  if (!record_is_on || rings_ == nullptr) return;
  add_step(rings_->step_sums, event);
  auto& ring = rings_->steps;
  ring.write(ring.written.fetch_add(1, std::memory_order_relaxed), std::bit_cast<StepWords>(event));
}

std::uint64_t Recorder::collectives() const {
  return rings_ == nullptr ? 0 : rings_->collectives.written.load(std::memory_order_acquire);
}

std::uint64_t Recorder::steps() const {
  return rings_ == nullptr ? 0 : rings_->steps.written.load(std::memory_order_acquire);
}

std::vector<CollectiveEvent> Recorder::collectives_since(std::uint64_t position) const {
  std::vector<CollectiveEvent> events;
  if (rings_ == nullptr) return events;
  for (const CollectiveWords& words : rings_->collectives.since(position)) {
    CollectiveEvent event{unpack(words), {}};
    const std::uint64_t algorithm = words[6];
    const std::uint64_t known = rings_->name_count.load(std::memory_order_acquire);
    if (algorithm != 0 && algorithm <= std::min<std::uint64_t>(known, RecordRings::most_names))
      std::ranges::copy(rings_->names[algorithm - 1], event.algorithm);
    events.push_back(event);
  }
  return events;
}

std::vector<TrainingStepEvent> Recorder::steps_since(std::uint64_t position) const {
  std::vector<TrainingStepEvent> events;
  if (rings_ == nullptr) return events;
  for (const StepWords& words : rings_->steps.since(position))
    events.push_back(std::bit_cast<TrainingStepEvent>(words));
  return events;
}

}  // namespace lockstep::trace
