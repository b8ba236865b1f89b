// Proves a plan: runs all ranks' actions symbolically and refuses the plan unless every step of training is right whatever
// the timing.
//
// What is proven
//   result       each forward and each backward of a stage and a micro-batch runs exactly once, on the stage's rank, after
//                what it needs is there; backwards of a stage come in the order of micro-batches, so that gradients have
//                the same bits in every schedule
//   no deadlock  with unbuffered sends: a send is complete only when its receiver has asked for it
//   matching     activations, and gradients, between two ranks are asked for in the order in which they are sent, and none
//                is left over
//   activations  no rank keeps more than the schedule says
#pragma once

#include <string>

#include "lockstep/pipeline/plan.h"
#include "lockstep/pipeline/schedules.h"

namespace lockstep::pipeline {

struct Verdict {
  bool proven = false;
  std::string reason;  ///< why it was refused, naming rank and action; empty if proven
  explicit operator bool() const { return proven; }
};

/// Cost: O(actions).
Verdict verify(const Schedule& schedule, const Plan& plan);

}  // namespace lockstep::pipeline
