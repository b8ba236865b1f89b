#include "lockstep/pipeline/simulate.h"

#include <algorithm>
#include <map>
#include <tuple>

namespace lockstep::pipeline {

Simulation simulate(const Plan& plan, const std::vector<StageTimes>& times) {
  using Key = std::tuple<Payload, int, int>;  // of a message: what, stage, micro-batch
  Simulation simulation;
  simulation.ranks.resize(plan.ranks.size());
  std::vector<std::size_t> next(plan.ranks.size());
  std::vector<double> now(plan.ranks.size()), busy(plan.ranks.size());
  std::map<Key, double> there;
  for (bool has_moved = true; has_moved;) {
    has_moved = false;
    for (std::size_t rank = 0; rank < plan.ranks.size(); ++rank) {
      for (; next[rank] < plan.ranks[rank].size(); ++next[rank], has_moved = true) {
        const Action& action = plan.ranks[rank][next[rank]];
        const StageTimes& stage = times[static_cast<std::size_t>(action.stage)];
        const Key key{action.payload, action.stage, action.micro_batch};
        if (action.kind == ActionKind::send) {
          there[key] =
              now[rank] + (action.payload == Payload::activation ? stage.send_forward : stage.send_backward);
          continue;
        }
        if (action.kind == ActionKind::receive) {
          const auto found = there.find(key);
          if (found == there.end()) break;
          now[rank] = std::max(now[rank], found->second);
          continue;
        }
        const double seconds = action.kind == ActionKind::forward ? stage.forward : stage.backward;
        simulation.ranks[rank].push_back({.action = action, .begin = now[rank], .end = now[rank] + seconds});
        now[rank] += seconds;
        busy[rank] += seconds;
      }
    }
  }
  double all_busy = 0;
  for (std::size_t rank = 0; rank < now.size(); ++rank) {
    simulation.seconds = std::max(simulation.seconds, now[rank]);
    all_busy += busy[rank];
  }
  if (simulation.seconds > 0)
    simulation.bubble = 1 - all_busy / (simulation.seconds * static_cast<double>(now.size()));
  return simulation;
}

std::vector<StageTimes> equal_times(int stages, double forward, double backward) {
  return std::vector<StageTimes>(static_cast<std::size_t>(stages),
                                 {.forward = forward / stages, .backward = backward / stages});
}

}  // namespace lockstep::pipeline
