#include "lockstep/view/live/arrival_matcher.h"

#include <algorithm>

namespace lockstep::view {
namespace {

// Of those whose other parts were overwritten before they were read.
constexpr std::size_t most_meetings = std::size_t{1} << 16;

}  // namespace

std::optional<LastArrival> ArrivalMatcher::add(std::size_t place, const trace::CompletedCollective& call,
                                               std::size_t members) {
  if (meetings_.size() >= most_meetings) meetings_.clear();
  const auto found = meetings_.try_emplace({call.group, call.sequence}).first;
  Meeting& meeting = found->second;
  if (call.begin_ns >= meeting.last_ns) {
    meeting.before_ns = meeting.last_ns;
    meeting.last_ns = call.begin_ns;
    meeting.last = place;
  } else {
    meeting.before_ns = std::max(meeting.before_ns, call.begin_ns);
  }
  if (++meeting.arrived < members) return std::nullopt;
  const LastArrival last{.place = meeting.last, .late_ns = meeting.last_ns - meeting.before_ns};
  meetings_.erase(found);
  return last;
}

}  // namespace lockstep::view
