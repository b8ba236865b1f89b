// Interleaved 1F1B: each rank has v stages, which lie p apart, so that a micro-batch comes by v times and the pipeline fills
// v times as fast. Bubble: (p - 1) / (v m + p - 1) where p divides m. Costs v times the messages, and activations of up to
// p - 1 more stages.
// Source: Narayanan et al. 2021, "Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM". There m
// is a multiple of p; any other m has the order of the next multiple, without the micro-batches that are not there: what
// waits for nothing more than before cannot deadlock.
#include <algorithm>
#include <cstddef>

#include "lockstep/pipeline/schedules.h"

namespace lockstep::pipeline {
namespace {

/// All there are, p micro-batches at a time; each group goes through the rank's stages one after the other.
Actions in_groups(const Shape& shape, int rank, ActionKind kind) {
  Actions order;
  const int stages = shape.stages_per_rank();
  for (int first = 0; first < shape.micro_batches; first += shape.ranks) {
    for (int i = 0; i < stages; ++i) {
      const int of_rank = kind == ActionKind::forward ? i : stages - 1 - i;
      for (int batch = first; batch < first + shape.ranks; ++batch)
        order.push_back({.kind = kind, .stage = of_rank * shape.ranks + rank, .micro_batch = batch});
    }
  }
  return order;
}

/// Forwards before the first backward.
int ahead_of(const Shape& shape, int rank) {
  return (shape.stages_per_rank() - 1) * shape.ranks + 2 * (shape.ranks - 1 - rank);
}

}  // namespace

Actions interleaved_order(const Shape& shape, int rank) {
  const Actions forwards = in_groups(shape, rank, ActionKind::forward);
  const Actions backwards = in_groups(shape, rank, ActionKind::backward);
  const auto ahead = std::min(static_cast<std::size_t>(ahead_of(shape, rank)), forwards.size());
  Actions order;
  const auto add = [&](const Action& action) {
    if (action.micro_batch < shape.micro_batches) order.push_back(action);
  };
  for (std::size_t i = 0; i < ahead; ++i) add(forwards[i]);
  for (std::size_t i = 0; i < backwards.size(); ++i) {
    if (i + ahead < forwards.size()) add(forwards[i + ahead]);
    add(backwards[i]);
  }
  return order;
}

int interleaved_activations(const Shape& shape, int rank) {
  return std::min(shape.micro_batches * shape.stages_per_rank(), ahead_of(shape, rank) + 1);
}

}  // namespace lockstep::pipeline
