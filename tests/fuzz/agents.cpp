// What launcher and agents say to each other over the pipes of a remote shell.
#include <array>
#include <nlohmann/json.hpp>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/launch/agents/live_messages.h"
#include "lockstep/launch/agents/message_pipe.h"
#include "lockstep/launch/agents/timeline_messages.h"
#include "lockstep/launch/agents/wire.h"
#include "lockstep/view/live/metrics.h"
#include "tests/fuzz/script.h"

namespace lockstep::fuzz::agents {
namespace {

using namespace launch::agents;

template <class T>
void read(const Message& message) {
  if (message.kind != T::kind) return;
  const Message again = to_message(content_of<T>(message));
  require(again.body == message.body, "what was read can be written, and is the same");
}

template <class... T>
void read_any_of(const Message& message) {
  (read<T>(message), ...);
}

void take_timeline(const Message& message, ReceivedTimeline& timeline) {
  if (message.kind == Kind::timeline_part) timeline.take(content_of<TimelinePart>(message));
  if (message.kind == Kind::timeline_names) timeline.take(content_of<TimelineNames>(message));
}

void show(ReceivedTimeline& received) {
  view::Timeline timeline;
  timeline.ranks = received.in_our_time(trace::ClockOffset(5), "far");
  std::string text;
  view::write_timeline(timeline, [&](std::string_view piece) { text += piece; });
  require(nlohmann::json::accept(text), "whatever the events hold, the timeline is JSON");
}

void take_live(const Message& message, ReceivedLive& live) {
  static constexpr std::array ranks = {0, 1, 2, 3};
  if (message.kind == Kind::live_part) live.take(content_of<LivePart>(message));
  if (message.kind == Kind::live_rank) live.take(content_of<LiveRankTold>(message));
  if (message.kind != Kind::live_end) return;
  const auto host = live.finish(ranks, trace::ClockOffset(5), "far");
  if (!host) return;
  require(host->ranks.size() == host->record.ranks.size(), "of each rank there is all");
  (void)view::text_of(view::metrics_of({.ranks = 4}, {*host}));
}

struct Received {
  ReceivedTimeline timeline = {};
  ReceivedLive live = {};
};

void take(const Message& message, Received& received) try {
  take_timeline(message, received.timeline);
  take_live(message, received.live);
  read_any_of<Hello, Planned, Probed, Serving, Started, Refused, Output, OutputEnd, Ended, Cause, Stragglers,
              RecordPart, Finished, InputRoom, Plan, Probe, Serve, Start, Room, ReaderGone, Signal, Tell,
              NoteFailure, Look, Finish, launch::agents::Input, LastLines, Conclusion, ClockAsked, ClockTold,
              TimelinePart, TimelineNames, LiveAsked, LivePart, LiveRankTold, LiveEnd>(message);
} catch (const Error& error) {
  require(error.code() == ErrorCode::corrupt_data, "a message that is none is corrupt data");
}

}  // namespace

int run_one(Input input) {
  Script script(input);
  MessageParser parser;
  Received received;
  std::size_t taken = 0, given = 0;
  try {
    while (!script.is_over()) {
      const std::string piece = script.text(script.byte());
      given += piece.size();
      parser.add(piece, [&](const Message& message) {
        taken += sizeof(std::uint32_t) + sizeof(Kind) + message.body.size();
        take(message, received);
      });
    }
    require(taken <= given, "no byte is taken twice");
    show(received.timeline);
    require(parser.is_between_messages() == (taken == given), "no byte is lost");
  } catch (const Error& error) {
    require(error.code() == ErrorCode::corrupt_data, "bytes that are no message are corrupt data");
  }
  return 0;
}

}  // namespace lockstep::fuzz::agents
