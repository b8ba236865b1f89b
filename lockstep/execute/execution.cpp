#include "lockstep/execute/execution.h"

#include <algorithm>
#include <cstring>

#include "lockstep/kernel/convert.h"
#include "lockstep/kernel/reduce.h"
#include "lockstep/trace/recorder.h"

namespace lockstep {
namespace {

// Shorter steps are not timed: reading the clock twice would cost more than they do.
constexpr std::size_t timed_bytes = kernel::CrossingCopies::least_told_bytes;

// Shorter copies are over before it matters in which order.
constexpr std::size_t paired_bytes = 2 * 1024;

}  // namespace

const std::function<void(const Schedule&, const Step&)>* Execution::watch_ = nullptr;

void Execution::begin(const Schedule& schedule, Surroundings& surroundings, int rank, std::uint64_t sequence,
                      const Signature& signature, std::size_t first_step) {
  schedule_ = &schedule;
  surroundings_ = &surroundings;
  rank_ = rank;
  sequence_ = sequence;
  signature_ = signature;
  next_ = first_step;
  if (schedule.uses_channels() || schedule.uses_exchange()) tickets_.resize(schedule.steps().size());
  scratch_.at_least(schedule.scratch_elements() * bindings_.element_bytes);
  wire_.at_least(schedule.wire_elements() * size_of(bindings_.wire_dtype));
}

bool Execution::advance(std::uint64_t& own_work_ns) {
  moved_ = false;
  const std::span<const Step> steps = schedule_->steps();
  while (next_ < steps.size()) {
    const std::size_t taken = take(steps[next_], own_work_ns);
    if (taken == 0) return false;
    if (watch_ != nullptr) {
      for (const Step& step : steps.subspan(next_, taken)) (*watch_)(*schedule_, step);
    }
    moved_ = true;
    next_ += taken;
  }
  return true;
}

std::size_t Execution::take(const Step& step, std::uint64_t& own_work_ns) {
  switch (step.kind) {
    case StepKind::send: {
      const Place& source = schedule_->sources(step)[0];
      tickets_[next_] = surroundings_->link(static_cast<int>(step.target))
                            .post_send(sequence_, signature_of(step, bindings_.sent_blocks),
                                       {address(source), message_bytes(step, source)});
      return 1;
    }
    case StepKind::receive: {
      const Place& destination = schedule_->destinations(step)[0];
      tickets_[next_] = surroundings_->link(static_cast<int>(step.target))
                            .post_receive(sequence_, signature_of(step, bindings_.received_blocks),
                                          {address(destination), message_bytes(step, destination)});
      return 1;
    }
    case StepKind::wait: {
      const Step& started = schedule_->steps()[step.target];
      if (started.kind == StepKind::exchange)
        return surroundings_->exchange().is_over(tickets_[step.target]) ? 1 : 0;
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
      Copied copied;
      if (step.kind == StepKind::copy) {
        copied = copy(step);
      } else {
        reduce(step);
      }
      if (timed) {
        const std::uint64_t took = trace::now_ns() - begin;
        own_work_ns += took;
        if (copied.told_bytes > 0) bindings_.crossing->plain_took(copied.told_bytes, took);
      }
      return copied.steps;
    }
    case StepKind::exchange: tickets_[next_] = start_exchange(step); return 1;
    case StepKind::arrive: surroundings_->arrive(step.target); return 1;
    case StepKind::await: return surroundings_->await(step.target) ? 1 : 0;
  }
  return 0;
}

std::uint64_t Execution::start_exchange(const Step& step) {
  const Call& call = *bindings_.call;
  const auto among = static_cast<Among>(step.target);
  const bool is_whole = among == Among::all;
  return surroundings_->exchange().start(
      {.operation = step.operation,
       .among = among,
       .input = address(schedule_->sources(step)[0]),
       .output = address(schedule_->destinations(step)[0]),
       .elements = step.elements,
       .element_bytes = bindings_.element_bytes,
       .dtype = bindings_.dtype,
       .reduce_op = bindings_.reduce_op,
       .root = call.root,
       .in_place = is_whole ? call.in_place : schedule_->sources(step)[0] == schedule_->destinations(step)[0],
       .counts = is_whole ? std::span<const std::size_t>(call.counts) : std::span<const std::size_t>(),
       .receive_counts =
           is_whole ? std::span<const std::size_t>(call.receive_counts) : std::span<const std::size_t>(),
       .signature = signature_.whole_call(),
       .number = sequence_});
}

Signature Execution::signature_of(const Step& step, std::span<const std::size_t> blocks) const {
  Signature signature = signature_;
  if (!blocks.empty()) signature.elements = blocks[step.target];
  return signature;
}

void Execution::convert(const Step& step) {
  const Place& source = schedule_->sources(step)[0];
  const Place& destination = schedule_->destinations(step)[0];
  if (destination.space == Space::wire) {
    kernel::narrow(bindings_.wire_dtype, step.elements, address(source), address(destination));
  } else {
    kernel::widen(bindings_.wire_dtype, step.elements, address(source), address(destination));
  }
}

Execution::Copied Execution::copy(const Step& step) {
  if (is_conversion(step)) {
    convert(step);
    return {};
  }
  const kernel::CopyTask task = copy_of(step);
  const bool crosses = is_crossing(step);
  if (crosses && bindings_.crossing->next_goes_past_caches(task.bytes)) {
    kernel::copy_past_caches(task.destination, task.source, task.bytes);
    return {};
  }
  if (const auto next = next_copy_beside(task)) {
    kernel::copy_both(task, *next);
    const bool either_crosses = crosses || is_crossing(schedule_->steps()[next_ + 1]);
    return {.steps = 2, .told_bytes = either_crosses ? task.bytes + next->bytes : 0};
  }
  if (task.destination != task.source) std::memcpy(task.destination, task.source, task.bytes);
  return {.steps = 1, .told_bytes = crosses ? task.bytes : 0};
}

/// The next step, if that is a copy that can be done at the same time.
std::optional<kernel::CopyTask> Execution::next_copy_beside(const kernel::CopyTask& task) const {
  const auto& steps = schedule_->steps();
  if (task.bytes < paired_bytes || next_ + 1 == steps.size()) return std::nullopt;
  const Step& next = steps[next_ + 1];
  if (next.kind != StepKind::copy || bytes_of(next) < paired_bytes || is_conversion(next))
    return std::nullopt;
  if (is_crossing(next) && bindings_.crossing->go_past_caches()) return std::nullopt;
  const kernel::CopyTask other = copy_of(next);
  const bool moves_nothing = task.destination == task.source || other.destination == other.source;
  if (moves_nothing || !kernel::are_independent(task, other)) return std::nullopt;
  return other;
}

void Execution::reduce(const Step& step) {
  const auto sources = schedule_->sources(step);
  const auto destinations = schedule_->destinations(step);
  // Past the caches, what is for others goes by a copy of its own.
  const bool is_copied = destinations.back().space == Space::staging &&
                         bytes_of(step) >= kernel::CrossingCopies::least_bytes &&
                         bindings_.crossing->go_past_caches();
  sources_.resize(sources.size());
  destinations_.resize(destinations.size());
  std::ranges::transform(sources, sources_.begin(), [this](const Place& place) { return address(place); });
  std::ranges::transform(destinations, destinations_.begin(),
                         [this](const Place& place) { return address(place); });
  // A result that only has to be scaled, by nothing.
  if (sources_.size() == 1 && destinations_.size() == 1 && sources_[0] == destinations_[0] &&
      (!step.last_reduction || bindings_.scale == 1.0))
    return;
  std::byte* const for_others = destinations_.back();
  if (is_copied && destinations_.size() > 1) {
    destinations_.pop_back();
  } else if (is_copied) {
    destinations_.back() = not_crossed_.at_least(bytes_of(step));
  }
  if (bindings_.custom != nullptr) {
    bindings_.custom->reduce(step.elements, sources_, destinations_);
  } else {
    kernel::reduce(bindings_.dtype, bindings_.reduce_op, step.elements, sources_, destinations_,
                   step.last_reduction ? bindings_.scale : 1.0);
  }
  if (is_copied) kernel::copy_past_caches(for_others, destinations_[0], bytes_of(step));
}

std::byte* Execution::address(const Place& place) const {
  const std::size_t offset = place.offset * bindings_.element_bytes;
  const auto rank = static_cast<std::size_t>(place.rank);
  switch (place.space) {
    // Schedules never write inputs (verify.h), so the const is only left out of the type.
    case Space::input: return const_cast<std::byte*>(bindings_.inputs[rank]) + offset;
    case Space::output: return bindings_.outputs[rank] + offset;
    case Space::scratch: return scratch_.data() + offset;
    case Space::wire: return wire_.data() + place.offset * size_of(bindings_.wire_dtype);
    case Space::slot: return bindings_.slots[rank] + offset;
    case Space::staging: {
      const std::size_t piece = place.offset / bindings_.window_elements;
      const std::size_t inside = place.offset % bindings_.window_elements * bindings_.element_bytes;
      return bindings_.staging[rank] + bindings_.windows.begin_of(piece) + inside;
    }
  }
  return nullptr;
}

}  // namespace lockstep
