// What algorithms over channels have in common: messages of at most one segment each, posted together and
// waited for together.
#pragma once

#include <vector>

#include "lockstep/schedule/schedule.h"

namespace lockstep::schedule {

using Posted = std::vector<Schedule::StepIndex>;

inline void wait_for(Schedule& steps, const Posted& posted) {
  for (const auto step : posted) steps.wait(step);
}

/// How `elements` are parted into messages: by segments. Of a block of all_to_all_v only its sender and its
/// receiver know the size, so an empty one is a message, too: where they differ, they find out.
inline std::vector<Range> messages_of(const Call& call, std::size_t elements) {
  const bool may_differ = call.operation == Operation::all_to_all && !call.counts.empty();
  if (elements == 0 && may_differ) return {{0, 0}};
  return segments_of({0, elements}, call.segment_elements);
}

/// Posts `elements` from `source` on, in segments.
inline Posted send_all(Schedule& steps, const Call& call, int peer, Place source, std::size_t elements) {
  Posted posted;
  for (const Range segment : messages_of(call, elements)) {
    posted.push_back(steps.send(peer, at(source, segment.begin), segment.count));
  }
  return posted;
}

inline Posted receive_all(Schedule& steps, const Call& call, int peer, Place destination,
                          std::size_t elements) {
  Posted posted;
  for (const Range segment : messages_of(call, elements)) {
    posted.push_back(steps.receive(peer, at(destination, segment.begin), segment.count));
  }
  return posted;
}

}  // namespace lockstep::schedule
