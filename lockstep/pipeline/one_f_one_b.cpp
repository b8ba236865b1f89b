// 1F1B: as many forwards as it takes until the first backward can come, then one backward for each forward. Bubble: that of
// GPipe, (p - 1) / (m + p - 1). Activations: those of p - stage micro-batches, however many there are.
// Source: Narayanan et al. 2019, "PipeDream" (the schedule); 2021, "Efficient Large-Scale Language Model Training on GPU
// Clusters" (with a flush at each step, as here).
#include <algorithm>

#include "lockstep/pipeline/schedules.h"

namespace lockstep::pipeline {

Actions one_f_one_b_order(const Shape& shape, int rank) {
  Actions order;
  const auto run = [&](ActionKind kind, int i) {
    order.push_back({.kind = kind, .stage = rank, .micro_batch = i});
  };
  const int ahead = std::min(shape.ranks - 1 - rank, shape.micro_batches);
  for (int i = 0; i < ahead; ++i) run(ActionKind::forward, i);
  for (int i = 0; i < shape.micro_batches; ++i) {
    if (i + ahead < shape.micro_batches) run(ActionKind::forward, i + ahead);
    run(ActionKind::backward, i);
  }
  return order;
}

int one_f_one_b_activations(const Shape& shape, int rank) {
  return std::min(shape.ranks - rank, shape.micro_batches);
}

}  // namespace lockstep::pipeline
