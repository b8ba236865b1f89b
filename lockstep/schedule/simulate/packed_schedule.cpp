#include "lockstep/schedule/simulate/packed_schedule.h"

#include <utility>

namespace lockstep::schedule {
namespace {

/// Which numbers are free.
class Requests {
 public:
  std::uint32_t take() {
    if (free_.empty()) return count_++;
    const std::uint32_t number = free_.back();
    free_.pop_back();
    return number;
  }
  void give_back(std::uint32_t number) { free_.push_back(number); }
  std::uint32_t count() const { return count_; }

 private:
  std::vector<std::uint32_t> free_;
  std::uint32_t count_ = 0;
};

}  // namespace

std::size_t StepShapes::Hash::operator()(const StepShape& shape) const {
  const std::size_t rest = static_cast<std::size_t>(shape.kind) | std::size_t{shape.sources} << 8 |
                           std::size_t{shape.destinations} << 24;
  return (shape.elements * 0x9e3779b97f4a7c15 + rest) * 0xff51afd7ed558ccd;
}

std::uint32_t StepShapes::index_of(const StepShape& shape) {
  const auto [found, is_new] = indices_.try_emplace(shape, static_cast<std::uint32_t>(shapes_.size()));
  if (is_new) shapes_.push_back(shape);
  return found->second;
}

PackedSchedule StepShapes::pack(const Schedule& schedule) {
  PackedSchedule packed;
  packed.steps.reserve(schedule.steps().size());
  std::vector<std::uint32_t> request_of(schedule.steps().size(), no_request);
  Requests requests;
  for (std::size_t index = 0; index < schedule.steps().size(); ++index) {
    const Step& step = schedule.steps()[index];
    PackedStep made{.target = step.target};
    if (step.kind == StepKind::send || step.kind == StepKind::receive) {
      made.request = request_of[index] = requests.take();
    } else if (step.kind == StepKind::wait) {
      made.request = std::exchange(request_of[step.target], no_request);
      if (made.request == no_request) continue;  // waited for already
      requests.give_back(made.request);
    }
    made.shape = index_of({step.kind, step.source_count, step.destination_count, step.elements});
    packed.steps.push_back(made);
  }
  packed.requests = requests.count();
  return packed;
}

}  // namespace lockstep::schedule
