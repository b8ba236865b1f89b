#include "lockstep/execute/execution.h"

#include <algorithm>
#include <cstring>

#include "lockstep/kernel/reduce.h"
#include "lockstep/trace/recorder.h"

namespace lockstep {
namespace {

// Shorter steps are not timed: reading the clock twice would cost more than they do.
constexpr std::size_t timed_bytes = 16 * 1024;

// Shorter copies are over before it matters in which order.
constexpr std::size_t paired_bytes = 2 * 1024;

const Execution::Observer* observer = nullptr;

}  // namespace

void Execution::observe(Observer new_observer) {
  static Observer kept;
  kept = std::move(new_observer);
  observer = kept ? &kept : nullptr;
}

void Execution::begin(const Schedule& schedule, Surroundings& surroundings, int rank, std::uint64_t sequence,
                      const Signature& signature, std::size_t first_step) {
  schedule_ = &schedule;
  surroundings_ = &surroundings;
  rank_ = rank;
  sequence_ = sequence;
  signature_ = signature;
  next_ = first_step;
  if (schedule.uses_channels()) tickets_.resize(schedule.steps().size());
  const std::size_t scratch_bytes = schedule.scratch_elements() * bindings_.element_bytes;
  if (scratch_.size() < scratch_bytes) scratch_.resize(scratch_bytes);
}

bool Execution::advance(std::uint64_t& own_work_ns) {
  moved_ = false;
  const std::span<const Step> steps = schedule_->steps();
  while (next_ < steps.size()) {
    const std::size_t taken = take(steps[next_], own_work_ns);
    if (taken == 0) return false;
    if (observer != nullptr) {
      for (const Step& step : steps.subspan(next_, taken)) (*observer)(*schedule_, step);
    }
    moved_ = true;
    next_ += taken;
  }
  return true;
}

std::size_t Execution::take(const Step& step, std::uint64_t& own_work_ns) {
  switch (step.kind) {
    case StepKind::send:
      tickets_[next_] =
          surroundings_->link(static_cast<int>(step.target))
              .post_send(sequence_, signature_, {address(schedule_->sources(step)[0]), bytes_of(step)});
      return 1;
    case StepKind::receive:
      tickets_[next_] = surroundings_->link(static_cast<int>(step.target))
                            .post_receive(sequence_, signature_,
                                          {address(schedule_->destinations(step)[0]), bytes_of(step)});
      return 1;
    case StepKind::wait: {
      const Step& started = schedule_->steps()[step.target];
      Link& link = surroundings_->link(static_cast<int>(started.target));
      const auto is_over = [&] {
        return (started.kind == StepKind::send ? link.sent() : link.received()) >= tickets_[step.target];
      };
      if (is_over()) return 1;
      moved_ = link.advance() || moved_;
      return is_over() ? 1 : 0;
    }
    case StepKind::copy:
    case StepKind::reduce: {
      const bool timed = bytes_of(step) >= timed_bytes;
      const std::uint64_t begin = timed ? trace::now_ns() : 0;
      const std::size_t taken = compute(step);
      if (timed) own_work_ns += trace::now_ns() - begin;
      return taken;
    }
    case StepKind::arrive: surroundings_->arrive(step.target); return 1;
    case StepKind::await: return surroundings_->await(step.target) ? 1 : 0;
  }
  return 0;
}

std::size_t Execution::compute(const Step& step) {
  const auto sources = schedule_->sources(step);
  const auto destinations = schedule_->destinations(step);
  if (step.kind == StepKind::copy) {
    std::byte* const destination = address(destinations[0]);
    const std::byte* const source = address(sources[0]);
    const std::size_t bytes = bytes_of(step);
    if (bytes >= paired_bytes && copy_with_next({destination, source, bytes})) return 2;
    // An all_reduce makes its copies in pairs, but for the first: the others read it at once.
    if (destinations[0].space == Space::staging && signature_.operation != Operation::all_reduce) {
      copy_for_others(destination, source, bytes);
    } else if (destination != source) {
      std::memcpy(destination, source, bytes);
    }
    return 1;
  }
  sources_.resize(sources.size());
  destinations_.resize(destinations.size());
  std::ranges::transform(sources, sources_.begin(), [this](const Place& place) { return address(place); });
  std::ranges::transform(destinations, destinations_.begin(),
                         [this](const Place& place) { return address(place); });
  if (bindings_.custom != nullptr) {
    bindings_.custom->reduce(step.elements, sources_, destinations_);
    return 1;
  }
  reduce(bindings_.dtype, bindings_.reduce_op, step.elements, sources_, destinations_,
         step.last_reduction ? bindings_.scale : 1.0);
  return 1;
}

/// Does the next step, too, if that is a copy that can be done at the same time.
bool Execution::copy_with_next(const CopyTask& task) const {
  const auto& steps = schedule_->steps();
  if (next_ + 1 == steps.size() || steps[next_ + 1].kind != StepKind::copy) return false;
  const Step& next = steps[next_ + 1];
  const CopyTask other{address(schedule_->destinations(next)[0]), address(schedule_->sources(next)[0]),
                       bytes_of(next)};
  const bool moves_nothing = task.destination == task.source || other.destination == other.source;
  if (other.bytes < paired_bytes || moves_nothing || !are_independent(task, other)) return false;
  copy_both(task, other);
  return true;
}

std::byte* Execution::address(const Place& place) const {
  const std::size_t offset = place.offset * bindings_.element_bytes;
  const auto rank = static_cast<std::size_t>(place.rank);
  switch (place.space) {
    // Schedules never write inputs (verify.h), so the const is only left out of the type.
    case Space::input: return const_cast<std::byte*>(bindings_.inputs[rank]) + offset;
    case Space::output: return bindings_.outputs[rank] + offset;
    case Space::scratch: return const_cast<std::byte*>(scratch_.data()) + offset;
    case Space::slot: return bindings_.slots[rank] + offset;
    case Space::staging: {
      const bool second = (place.offset >= bindings_.staging_half_elements) != bindings_.is_staging_turned;
      const std::size_t inside = place.offset % bindings_.staging_half_elements * bindings_.element_bytes;
      return bindings_.staging[rank] + (second ? bindings_.staging_half_bytes : 0) + inside;
    }
  }
  return nullptr;
}

}  // namespace lockstep
