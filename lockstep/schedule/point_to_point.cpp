// point_to_point: one sender, one receiver, nobody else.
//
//   rank 0   ->        root sends its input
//   rank 1
//   rank 2   <-        destination receives into its output
//   rank 3
#include <algorithm>

#include "lockstep/schedule/algorithms.h"

namespace lockstep {

Schedule point_to_point(const Call& call) {
  Schedule steps;
  std::vector<Schedule::StepIndex> started;
  std::size_t begin = 0;
  do {  // at least one message, also for no elements
    const std::size_t count = std::min(call.segment_elements, call.elements - begin);
    if (call.rank == call.root) {
      started.push_back(steps.send(call.destination, {Space::input, call.rank, begin}, count));
    }
    if (call.rank == call.destination) {
      started.push_back(steps.receive(call.root, {Space::output, call.rank, begin}, count));
    }
    begin += call.segment_elements;
  } while (begin < call.elements);
  for (const auto step : started) steps.wait(step);
  return steps;
}

}  // namespace lockstep
