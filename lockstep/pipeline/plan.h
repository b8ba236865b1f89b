// A pipeline's plan: which rank runs the forward and backward of which stage with which micro-batch, in which order, and
// what it sends to whom. Like a collective's schedule it is data and not control flow, so that the same list is run
// (train/pipeline/), proven (verify.h), simulated (simulate.h) and drawn (draw.h).
//
// Vocabulary
//   stage        consecutive layers of a model; the stages lie on the ranks in turn: stage s on rank s mod ranks
//   micro-batch  a part of the batch that goes through the stages by itself
//   forward      of one stage and one micro-batch; keeps its activations until the backward
//   backward     the same, after which the activations are gone; gradients add up in the order of micro-batches
//   send         starts to hand a stage's output (activation) or its input's gradient (gradient) to the rank of the next or
//                previous stage; complete when the receiver has asked for it, and waited for at the end of the step
//   receive      waits for one
// Activations between two ranks are matched in their order, and so are gradients (they have a tag of their own).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::pipeline {

/// Of what a plan is a function.
struct Shape {
  int ranks = 1;
  int stages = 1;  ///< a multiple of ranks
  int micro_batches = 1;

  int rank_of(int stage) const { return stage % ranks; }
  int stages_per_rank() const { return stages / ranks; }
  friend bool operator==(const Shape&, const Shape&) = default;
};

enum class ActionKind : std::uint8_t { forward, backward, send, receive };

/// What a message is.
enum class Payload : std::uint8_t { activation, gradient };

struct Action {
  ActionKind kind = ActionKind::forward;
  Payload payload = Payload::activation;  ///< of a message
  int stage = 0;                          ///< of a message: that which made it
  int micro_batch = 0;
  int peer = 0;  ///< of a message: the other rank

  friend bool operator==(const Action&, const Action&) = default;
};

/// "forward of stage 1 with micro-batch 3", "send of the activation of ... to rank 2".
std::string to_string(const Action& action);

/// One rank's actions, in order.
using Actions = std::vector<Action>;

struct Plan {
  Shape shape;
  std::vector<Actions> ranks;
};

}  // namespace lockstep::pipeline
