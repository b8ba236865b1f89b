#include "lockstep/pipeline/schedules.h"

#include <fmt/core.h>

#include <algorithm>
#include <string>

#include "lockstep/base/error.h"

namespace lockstep::pipeline {
namespace {

constexpr Schedule schedules[] = {
    {"naive", "one micro-batch at a time, one rank at work", naive_order, true, naive_activations},
    {"gpipe", "all forwards, then all backwards", gpipe_order, true, gpipe_activations},
    {"1f1b", "one backward for each forward: few activations", one_f_one_b_order, false,
     one_f_one_b_activations},
    {"interleaved", "several stages on a rank: a smaller bubble", interleaved_order, true,
     interleaved_activations},
};

Error no_plan(const std::string& why) { return {ErrorCode::invalid_argument, "pipeline: " + why}; }

/// With what a forward or backward needs from other ranks before it, and gives to them after it.
void add_with_messages(Actions& actions, const Shape& shape, const Action& action) {
  const bool is_forward = action.kind == ActionKind::forward;
  const Payload payload = is_forward ? Payload::activation : Payload::gradient;
  const int from = action.stage + (is_forward ? -1 : 1), to = action.stage + (is_forward ? 1 : -1);
  const auto is_elsewhere = [&](int stage) {
    return stage >= 0 && stage < shape.stages && shape.rank_of(stage) != shape.rank_of(action.stage);
  };
  if (is_elsewhere(from))
    actions.push_back({.kind = ActionKind::receive,
                       .payload = payload,
                       .stage = from,
                       .micro_batch = action.micro_batch,
                       .peer = shape.rank_of(from)});
  actions.push_back(action);
  if (is_elsewhere(to))
    actions.push_back({.kind = ActionKind::send,
                       .payload = payload,
                       .stage = action.stage,
                       .micro_batch = action.micro_batch,
                       .peer = shape.rank_of(to)});
}

}  // namespace

std::span<const Schedule> all_schedules() { return schedules; }

const Schedule& schedule_named(std::string_view name) {
  const auto found = std::ranges::find(schedules, name, &Schedule::name);
  if (found != std::end(schedules)) return *found;
  std::string names;
  for (const Schedule& schedule : schedules)
    names += (names.empty() ? "" : ", ") + std::string(schedule.name);
  throw no_plan(fmt::format("there is no schedule \"{}\"; there are {}", name, names));
}

Plan plan_of(const Schedule& schedule, const Shape& shape) {
  if (shape.ranks < 1) throw no_plan("it has no ranks");
  if (shape.micro_batches < 1)
    throw no_plan(fmt::format("{} micro-batches; there has to be one at least", shape.micro_batches));
  if (shape.stages < shape.ranks || shape.stages % shape.ranks != 0)
    throw no_plan(fmt::format("{} stages on {} ranks; each rank is to have as many, one at least",
                              shape.stages, shape.ranks));
  if (shape.stages != shape.ranks && !schedule.takes_several_stages)
    throw no_plan(fmt::format("{} has one stage on each rank, {} stages on {} ranks are for interleaved",
                              schedule.name, shape.stages, shape.ranks));
  Plan plan{.shape = shape, .ranks = {}};
  for (int rank = 0; rank < shape.ranks; ++rank) {
    Actions& actions = plan.ranks.emplace_back();
    for (const Action& action : schedule.order(shape, rank)) add_with_messages(actions, shape, action);
  }
  return plan;
}

}  // namespace lockstep::pipeline
