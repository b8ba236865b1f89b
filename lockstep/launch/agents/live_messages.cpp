#include "lockstep/launch/agents/live_messages.h"

#include <algorithm>
#include <utility>

namespace lockstep::launch::agents {
namespace {

constexpr std::size_t live_piece_bytes = std::size_t{1} << 20;
constexpr std::size_t most_live_bytes = std::size_t{64} << 20;
constexpr std::size_t most_ranks_told = std::size_t{1} << 12;  // as most_ranks has it

}  // namespace

void send_live(MessagePipe& pipe, const std::optional<view::LiveHost>& host) {
  const std::string text = host ? host->record.to_text() : "";
  for (std::size_t at = 0; at < text.size(); at += live_piece_bytes)
    pipe.send(LivePart{.text = text.substr(at, live_piece_bytes)});
  for (std::size_t i = 0; host && i < host->ranks.size(); ++i) {
    const view::LiveRank& rank = host->ranks[i];
    LiveRankTold told{.rank = rank.rank,
                      .resident_bytes = rank.resident_bytes,
                      .user_ns = rank.user_ns,
                      .system_ns = rank.system_ns,
                      .last_arrivals = rank.last_arrivals};
    for (const view::NamedValue& counter : rank.counters)
      told.counters.emplace_back(counter.name, counter.value);
    pipe.send(told);
  }
  pipe.send(LiveEnd{});
}

void ReceivedLive::take(const LivePart& part) {
  if (text_.size() + part.text.size() > most_live_bytes)
    throw Error(ErrorCode::corrupt_data, "a record of a running job that is too long");
  text_ += part.text;
}

void ReceivedLive::take(const LiveRankTold& told) {
  if (ranks_.size() >= most_ranks_told || told.counters.size() > trace::SpanRings::most_names)
    throw Error(ErrorCode::corrupt_data, "more ranks or counters of a running job than there can be");
  view::LiveRank rank{.rank = told.rank,
                      .resident_bytes = told.resident_bytes,
                      .user_ns = told.user_ns,
                      .system_ns = told.system_ns,
                      .last_arrivals = told.last_arrivals};
  for (const auto& [name, value] : told.counters) rank.counters.push_back({name, value});
  ranks_[told.rank] = std::move(rank);
}

std::optional<view::LiveHost> ReceivedLive::finish(std::span<const int> ranks,
                                                   const trace::ClockOffset& clock, const std::string& host) {
  const std::string text = std::exchange(text_, {});
  auto beside = std::exchange(ranks_, {});
  view::LiveHost live;
  try {
    live.record = trace::FlightRecord::parse(text, "what ranks of " + host + " do");
  } catch (const Error&) {
    return std::nullopt;
  }
  trace::shift_times(live.record,
                     static_cast<std::int64_t>(clock.to_ours(live.record.at_ns) - live.record.at_ns));
  live.record.host = host;
  live.record.goes_on = true;
  std::erase_if(live.record.ranks,
                [&](const trace::FlightRank& rank) { return !std::ranges::binary_search(ranks, rank.rank); });
  for (const trace::FlightRank& rank : live.record.ranks) {
    live.ranks.push_back(std::move(beside[rank.rank]));
    live.ranks.back().rank = rank.rank;
  }
  return live;
}

}  // namespace lockstep::launch::agents
