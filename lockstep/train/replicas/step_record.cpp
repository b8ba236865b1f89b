#include "lockstep/train/replicas/step_record.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <utility>

#include "lockstep/base/log.h"
#include "lockstep/trace/recorder.h"
#include "lockstep/train/tensor/device.h"

namespace lockstep {
namespace {

// The host is not further ahead of a GPU than this, or does not want to know.
constexpr std::size_t most_coming = 64;

c10::Event timed_mark(const c10::Stream& stream) {
  c10::Event mark(stream.device_type(), c10::EventFlag::BACKEND_DEFAULT);
  mark.record(stream);
  return mark;
}

}  // namespace

StepRecord::~StepRecord() {
  take_up();
  for (const Coming& coming : coming_) group_.recorder().record(coming.step);
}

void StepRecord::begin() {
  waits_.clear();
  take_up();
}

void StepRecord::begin_wait(torch::Device device) {
  if (device.is_cpu()) return;
  const c10::Stream stream = current_stream(device);
  waits_.push_back({timed_mark(stream), c10::Event(stream.device_type(), c10::EventFlag::BACKEND_DEFAULT)});
}

void StepRecord::end_wait() {
  if (waits_.empty()) return;
  Wait& wait = waits_.back();
  wait.to.record(current_stream(wait.from.device()));
}

void StepRecord::put(const trace::TrainingStepEvent& step) {
  coming_.push_back({std::move(waits_), step});
  waits_.clear();
  take_up();
  if (coming_.size() <= most_coming) return;
  group_.recorder().record(coming_.front().step);
  coming_.pop_front();
}

void StepRecord::take_up() {
  for (; !coming_.empty(); coming_.pop_front()) {
    auto& [waits, step] = coming_.front();
    try {
      if (!std::ranges::all_of(waits, [](const Wait& wait) { return wait.to.query(); })) return;
      for (const Wait& wait : waits)
        step.exposed_wait_ns += static_cast<std::uint64_t>(wait.from.elapsedTime(wait.to) * 1e6);
    } catch (const std::exception& error) {  // the GPU has failed, which who uses it will find
      log::debug(error.what());
    }
    group_.recorder().record(step);
  }
}

}  // namespace lockstep
