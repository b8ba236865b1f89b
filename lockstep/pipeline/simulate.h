// How long a plan takes, where it is known how long its stages take: in virtual time, on ranks that need not be there.
#pragma once

#include <vector>

#include "lockstep/pipeline/plan.h"

namespace lockstep::pipeline {

/// In seconds, for one micro-batch.
struct StageTimes {
  double forward = 0;
  double backward = 0;
  /// Until what the stage hands on (to the next, or the gradient to the previous one) is there: latency and transfer.
  double send_forward = 0;
  double send_backward = 0;
};

/// When one forward or backward ran.
struct Span {
  Action action;
  double begin = 0;
  double end = 0;
};

struct Simulation {
  double seconds = 0;                         ///< of one step
  double bubble = 0;                          ///< share of all ranks' time in which they had nothing to do
  std::vector<std::vector<Span>> ranks = {};  ///< forwards and backwards, in their order
};

/// `times`: one for each stage. A message takes its time beside the work of both ranks. REQUIRES: a proven plan.
Simulation simulate(const Plan& plan, const std::vector<StageTimes>& times);

/// All stages alike: `stages` of a model whose forward takes `forward` and backward `backward` seconds in all.
std::vector<StageTimes> equal_times(int stages, double forward, double backward);

}  // namespace lockstep::pipeline
