// GPipe: all forwards, then all backwards. Bubble: (p - 1) / (m + p - 1) of the time. Activations: all m micro-batches'.
// Source: Huang et al. 2019, "GPipe: Efficient Training of Giant Neural Networks using Pipeline Parallelism".
#include "lockstep/pipeline/schedules.h"

namespace lockstep::pipeline {

Actions gpipe_order(const Shape& shape, int rank) {
  Actions order;
  for (int stage = rank; stage < shape.stages; stage += shape.ranks) {
    for (int i = 0; i < shape.micro_batches; ++i)
      order.push_back({.kind = ActionKind::forward, .stage = stage, .micro_batch = i});
  }
  for (int stage = rank + shape.stages - shape.ranks; stage >= 0; stage -= shape.ranks) {
    for (int i = 0; i < shape.micro_batches; ++i)
      order.push_back({.kind = ActionKind::backward, .stage = stage, .micro_batch = i});
  }
  return order;
}

int gpipe_activations(const Shape& shape, int /*rank*/) {
  return shape.micro_batches * shape.stages_per_rank();
}

}  // namespace lockstep::pipeline
