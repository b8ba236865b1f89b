// What algorithms over channels have in common: messages of at most one segment each, posted together and
// waited for together.
#pragma once

#include <vector>

#include "lockstep/schedule/schedule.h"

namespace lockstep {

using Posted = std::vector<Schedule::StepIndex>;

inline void wait_for(Schedule& steps, const Posted& posted) {
  for (const auto step : posted) steps.wait(step);
}

inline Place at(Place base, std::size_t offset) { return {base.space, base.rank, base.offset + offset}; }

/// Posts `elements` from `source` on, in segments.
inline Posted send_all(Schedule& steps, const Call& call, int peer, Place source, std::size_t elements) {
  Posted posted;
  for (const Range segment : segments_of({0, elements}, call.segment_elements)) {
    posted.push_back(steps.send(peer, at(source, segment.begin), segment.count));
  }
  return posted;
}

inline Posted receive_all(Schedule& steps, const Call& call, int peer, Place destination,
                          std::size_t elements) {
  Posted posted;
  for (const Range segment : segments_of({0, elements}, call.segment_elements)) {
    posted.push_back(steps.receive(peer, at(destination, segment.begin), segment.count));
  }
  return posted;
}

/// Where this rank's buffers lie.
inline Place input_at(const Call& call, std::size_t offset) { return {Space::input, call.rank, offset}; }
inline Place output_at(const Call& call, std::size_t offset) { return {Space::output, call.rank, offset}; }

}  // namespace lockstep
