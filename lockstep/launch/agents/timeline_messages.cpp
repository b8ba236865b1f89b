#include "lockstep/launch/agents/timeline_messages.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>

#include "lockstep/view/profile/timeline_spool.h"

namespace lockstep::launch::agents {
namespace {

constexpr std::size_t piece_bytes = std::size_t{1} << 20;
// Each rank may have two events where there is no room.
constexpr std::size_t most_bytes = 2 * view::TimelineSpool::most_events * sizeof(trace::CollectiveEvent);

template <class Event>
void send_events(MessagePipe& pipe, int rank, TimelinePart::Of of, const std::vector<Event>& events) {
  constexpr std::size_t piece = piece_bytes / sizeof(Event);
  for (std::size_t at = 0; at < events.size(); at += piece) {
    const auto part = std::as_bytes(std::span(events).subspan(at, std::min(piece, events.size() - at)));
    pipe.send(TimelinePart{.rank = rank, .of = of, .bytes = std::string(base::text_of(part))});
  }
}

template <class Event>
void append_events(std::vector<Event>& events, const std::string& bytes) {
  if (bytes.size() % sizeof(Event) != 0)
    throw Error(ErrorCode::corrupt_data, "a part of the timeline that ends within an event");
  const std::size_t before = events.size();
  events.resize(before + bytes.size() / sizeof(Event));
  if (!bytes.empty()) std::memcpy(events.data() + before, bytes.data(), bytes.size());
}

}  // namespace

void send_timeline(MessagePipe& pipe, const std::vector<view::RankTimeline>& ranks) {
  for (const view::RankTimeline& rank : ranks) {
    send_events(pipe, rank.rank, TimelinePart::Of::calls, rank.calls);
    send_events(pipe, rank.rank, TimelinePart::Of::steps, rank.steps);
    send_events(pipe, rank.rank, TimelinePart::Of::spans, rank.spans);
    pipe.send(TimelineNames{
        .rank = rank.rank, .pid = rank.pid, .names = rank.span_names, .left_out = rank.left_out});
  }
}

void ReceivedTimeline::take(const TimelinePart& part) {
  bytes_ += part.bytes.size();
  if (bytes_ > most_bytes)
    throw Error(ErrorCode::corrupt_data, "a timeline of more events than a host keeps");
  view::RankTimeline& rank = ranks_[part.rank];
  switch (part.of) {
    case TimelinePart::Of::calls: return append_events(rank.calls, part.bytes);
    case TimelinePart::Of::steps: return append_events(rank.steps, part.bytes);
    case TimelinePart::Of::spans: return append_events(rank.spans, part.bytes);
  }
  throw Error(ErrorCode::corrupt_data, "a part of the timeline of no kind");
}

void ReceivedTimeline::take(const TimelineNames& names) {
  view::RankTimeline& rank = ranks_[names.rank];
  rank.pid = names.pid;
  rank.span_names = names.names;
  rank.left_out = names.left_out;
}

std::vector<view::RankTimeline> ReceivedTimeline::in_our_time(const trace::ClockOffset& clock,
                                                              const std::string& host) {
  std::vector<view::RankTimeline> all;
  for (auto& [number, rank] : ranks_) {
    rank.rank = number;
    rank.host = host;
    std::erase_if(rank.calls, [](const trace::CollectiveEvent& call) {
      return !trace::makes_sense(call.operation, call.dtype, call.reduce_op);
    });
    view::shift_times(rank, [&](std::uint64_t theirs) { return clock.to_ours(theirs); });
    all.push_back(std::move(rank));
  }
  ranks_.clear();
  return all;
}

}  // namespace lockstep::launch::agents
