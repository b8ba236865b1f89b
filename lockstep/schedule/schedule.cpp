#include "lockstep/schedule/schedule.h"

#include <fmt/core.h>

namespace lockstep {

Schedule::StepIndex Schedule::add(Step step, std::span<const Place> sources,
                                  std::span<const Place> destinations) {
  step.first_place = static_cast<std::uint32_t>(places_.size());
  step.source_count = static_cast<std::uint16_t>(sources.size());
  step.destination_count = static_cast<std::uint16_t>(destinations.size());
  places_.insert(places_.end(), sources.begin(), sources.end());
  places_.insert(places_.end(), destinations.begin(), destinations.end());
  steps_.push_back(step);
  return static_cast<StepIndex>(steps_.size() - 1);
}

Schedule::StepIndex Schedule::send(int peer, Place source, std::size_t elements) {
  uses_channels_ = true;
  return add({.kind = StepKind::send, .target = static_cast<std::uint32_t>(peer), .elements = elements},
             std::span(&source, 1), {});
}

Schedule::StepIndex Schedule::receive(int peer, Place destination, std::size_t elements) {
  uses_channels_ = true;
  return add({.kind = StepKind::receive, .target = static_cast<std::uint32_t>(peer), .elements = elements},
             {}, std::span(&destination, 1));
}

Schedule::StepIndex Schedule::exchange(Operation operation, Among among, Place source, Place destination,
                                       std::size_t elements) {
  uses_exchange_ = true;
  return add({.kind = StepKind::exchange,
              .operation = operation,
              .target = static_cast<std::uint32_t>(among),
              .elements = elements},
             std::span(&source, 1), std::span(&destination, 1));
}

void Schedule::wait(StepIndex started) { add({.kind = StepKind::wait, .target = started}, {}, {}); }

void Schedule::copy(Place source, Place destination, std::size_t elements) {
  if (elements == 0 || source == destination) return;
  add({.kind = StepKind::copy, .elements = elements}, std::span(&source, 1), std::span(&destination, 1));
}

void Schedule::reduce(std::span<const Place> sources, std::span<const Place> destinations,
                      std::size_t elements, bool last_reduction) {
  if (elements == 0) return;
  add({.kind = StepKind::reduce, .last_reduction = last_reduction, .elements = elements}, sources,
      destinations);
}

void Schedule::arrive() {
  ++stages_;
  add({.kind = StepKind::arrive, .target = stages_}, {}, {});
}

void Schedule::wait_for_all() {
  arrive();
  add({.kind = StepKind::await, .target = stages_}, {}, {});
}

Place Schedule::scratch(int rank, std::size_t elements) {
  const Place place{Space::scratch, rank, scratch_elements_};
  scratch_elements_ += elements;
  return place;
}

Place Schedule::wire(int rank, std::size_t elements) {
  const Place place{Space::wire, rank, wire_elements_};
  wire_elements_ += elements;
  return place;
}

std::string to_string(const Place& place) {
  static constexpr const char* names[] = {"input", "output", "scratch", "slot", "staging", "wire"};
  return fmt::format("{}[{}]+{}", names[static_cast<int>(place.space)], place.rank, place.offset);
}

namespace {

std::string list(std::span<const Place> places) {
  std::string text;
  for (const Place& place : places) text += (text.empty() ? "" : ", ") + to_string(place);
  return text;
}

std::string to_string(const Schedule& schedule, const Step& step) {
  const std::string target = std::to_string(step.target);
  const std::string count = fmt::format(" x {}", step.elements);
  const auto from = [&] { return list(schedule.sources(step)); };
  const auto into = [&] { return list(schedule.destinations(step)); };
  switch (step.kind) {
    case StepKind::send: return "send to " + target + " from " + from() + count;
    case StepKind::receive: return "receive from " + target + " into " + into() + count;
    case StepKind::wait: return "wait for step " + target;
    case StepKind::copy: return "copy " + from() + " -> " + into() + count;
    case StepKind::reduce:
      return "reduce " + from() + " -> " + into() + count + (step.last_reduction ? " (last)" : "");
    case StepKind::arrive: return "arrive at stage " + target;
    case StepKind::await: return "await stage " + target;
    case StepKind::exchange:
      return std::string(to_string(step.operation)) + " by the engine, among " +
             (step.target == static_cast<std::uint32_t>(Among::all) ? "all" : "the slice's owners") + ", " +
             from() + " -> " + into() + count;
  }
  return "unknown step";
}

}  // namespace

std::string to_string(const Schedule& schedule) {
  std::string text;
  for (std::size_t index = 0; index < schedule.steps().size(); ++index) {
    text += fmt::format("{}: {}\n", index, to_string(schedule, schedule.steps()[index]));
  }
  return text;
}

}  // namespace lockstep
