// Naive: a micro-batch goes through all stages and back before the next one begins; one rank works at a time. What a model
// split over devices by hand does. Bubble: (p - 1) / p of the time, whatever the number of micro-batches. Activations: one
// micro-batch's.
#include "lockstep/pipeline/schedules.h"

namespace lockstep::pipeline {

Actions naive_order(const Shape& shape, int rank) {
  Actions order;
  for (int i = 0; i < shape.micro_batches; ++i) {
    for (int stage = rank; stage < shape.stages; stage += shape.ranks)
      order.push_back({.kind = ActionKind::forward, .stage = stage, .micro_batch = i});
    for (int stage = rank + shape.stages - shape.ranks; stage >= 0; stage -= shape.ranks)
      order.push_back({.kind = ActionKind::backward, .stage = stage, .micro_batch = i});
  }
  return order;
}

int naive_activations(const Shape& shape, int /*rank*/) { return shape.stages_per_rank(); }

}  // namespace lockstep::pipeline
