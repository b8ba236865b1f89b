// What a host's ranks do while they run as messages, and back.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>

#include "lockstep/launch/agents/message_pipe.h"
#include "lockstep/launch/agents/wire.h"
#include "lockstep/trace/clock_offset.h"
#include "lockstep/view/live/live_reader.h"

namespace lockstep::launch::agents {

/// In answer to a LiveAsked. nullopt: there is nothing to tell.
void send_live(MessagePipe& pipe, const std::optional<view::LiveHost>& host);

/// What has come of one look.
class ReceivedLive {
 public:
  /// Both throw Error{corrupt_data} for more than a host has.
  void take(const LivePart& part);
  void take(const LiveRankTold& told);
  /// At its end: of those of `ranks` that are in it, in our clock; nullopt for what makes no sense. The next look begins.
  std::optional<view::LiveHost> finish(std::span<const int> ranks, const trace::ClockOffset& clock,
                                       const std::string& host);

 private:
  std::string text_;
  std::map<int, view::LiveRank> ranks_;
};

}  // namespace lockstep::launch::agents
