// The schedules of pipelines, each in a file of its own: in which order a rank runs forwards and backwards. What it sends
// and receives follows from that.
#pragma once

#include <span>
#include <string_view>

#include "lockstep/pipeline/plan.h"

namespace lockstep::pipeline {

/// Forwards and backwards of one rank, without messages.
using Order = Actions (*)(const Shape& shape, int rank);

struct Schedule {
  std::string_view name;
  std::string_view purpose;
  Order order;
  bool takes_several_stages;  ///< on one rank
  /// Activations that a rank keeps at most, each of one stage and one micro-batch.
  int (*most_activations)(const Shape& shape, int rank);
};

/// naive, gpipe, 1f1b, interleaved.
std::span<const Schedule> all_schedules();

/// Throws Error{invalid_argument} that names those there are.
const Schedule& schedule_named(std::string_view name);

/// All ranks' actions. Throws Error{invalid_argument} where the shape is none for this schedule: no ranks, stages that are
/// no multiple of the ranks, several on a rank that the schedule has one for, no micro-batches.
Plan plan_of(const Schedule& schedule, const Shape& shape);

// Each in its file.
Actions naive_order(const Shape& shape, int rank);
int naive_activations(const Shape& shape, int rank);
Actions gpipe_order(const Shape& shape, int rank);
int gpipe_activations(const Shape& shape, int rank);
Actions one_f_one_b_order(const Shape& shape, int rank);
int one_f_one_b_activations(const Shape& shape, int rank);
Actions interleaved_order(const Shape& shape, int rank);
int interleaved_activations(const Shape& shape, int rank);

}  // namespace lockstep::pipeline
