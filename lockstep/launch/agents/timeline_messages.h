// A host's part of the timeline as messages, and back.
#pragma once

#include <map>
#include <vector>

#include "lockstep/launch/agents/message_pipe.h"
#include "lockstep/launch/agents/wire.h"
#include "lockstep/trace/clock_offset.h"
#include "lockstep/view/profile/timeline.h"

namespace lockstep::launch::agents {

void send_timeline(MessagePipe& pipe, const std::vector<view::RankTimeline>& ranks);

/// What has come of a host's ranks.
class ReceivedTimeline {
 public:
  /// Throws Error{corrupt_data} for parts of events, and for more than a host keeps.
  void take(const TimelinePart& part);
  void take(const TimelineNames& names);
  /// In our clock.
  std::vector<view::RankTimeline> in_our_time(const trace::ClockOffset& clock, const std::string& host);

 private:
  std::map<int, view::RankTimeline> ranks_;
  std::size_t bytes_ = 0;
};

}  // namespace lockstep::launch::agents
