#include "lockstep/view/live/live_reader.h"

#include <algorithm>
#include <utility>

#include "lockstep/base/process_status.h"
#include "lockstep/trace/clock.h"
#include "lockstep/trace/recorder.h"
#include "lockstep/view/profile/page_record.h"

namespace lockstep::view {
namespace {

constexpr std::size_t most_counters = trace::SpanRings::most_names;

/// How many ranks meet in a collective of each group, where all of them are here; a rank alone is never late.
std::map<std::uint32_t, std::size_t> groups_of_this_host(const trace::FlightRecord& record) {
  std::map<std::uint32_t, std::size_t> sizes;
  for (const trace::FlightGroup& group : record.groups) {
    if (group.members.size() > 1 && !std::ranges::count(group.members, -1))
      sizes.emplace(group.number, group.members.size());
  }
  return sizes;
}

}  // namespace

LiveReader::LiveReader(const ControlPage& page, std::vector<int> world_ranks, int ranks_in_all, From from)
    : page_(page),
      world_ranks_(std::move(world_ranks)),
      ranks_in_all_(ranks_in_all),
      ranks_(static_cast<std::size_t>(page.local_ranks())) {
  for (int place = 0; from == From::now && place < page.local_ranks(); ++place)
    ranks_[static_cast<std::size_t>(place)].calls = trace::Recorder(&page.record(place)).collectives();
}

LiveHost LiveReader::look() {
  LiveHost host{.record = read_record(page_, world_ranks_, ranks_in_all_, events_kept)};
  host.record.goes_on = true;
  host.record.at_ns = trace::now_ns();
  for (Rank& rank : ranks_) rank.live.late.clear();
  count_arrivals(host.record);
  for (std::size_t place = 0; place < ranks_.size(); ++place) {
    read_counters(place);
    read_process(place, host.record.ranks[place]);
    host.ranks.push_back(ranks_[place].live);
  }
  return host;
}

void LiveReader::count_arrivals(const trace::FlightRecord& record) {
  const auto sizes = groups_of_this_host(record);
  for (std::size_t place = 0; place < ranks_.size(); ++place) {
    const trace::Recorder recorder(&page_.record(static_cast<int>(place)));
    const std::uint64_t end = recorder.collectives();
    const auto calls = recorder.collectives_since(ranks_[place].calls);
    ranks_[place].calls = std::max(end, ranks_[place].calls + calls.size());
    for (const trace::CollectiveEvent& call : calls) {
      const auto size = sizes.find(call.group);
      if (size == sizes.end() || is_message(call.operation) || call.failed != 0) continue;
      const auto last = arrivals_.add(place, call, size->second);
      if (!last) continue;
      ++ranks_[last->place].live.last_arrivals;
      ranks_[last->place].live.late.push_back(last->late_ns);
    }
  }
}

void LiveReader::read_counters(std::size_t place) {
  Rank& rank = ranks_[place];
  const trace::SpanRings& rings = page_.spans(static_cast<int>(place));
  std::uint64_t left_out = 0;
  const auto events = trace::read_spans(rings, rank.spans, left_out);
  const auto names = trace::read_span_names(rings);
  for (const trace::SpanEvent& event : events) {
    if (event.thread != trace::counter_thread || event.name == 0 || event.name >= names.size()) continue;
    if (rank.counters.size() < most_counters || rank.counters.contains(names[event.name]))
      rank.counters[names[event.name]] = event.value;
  }
  rank.live.counters.clear();
  for (const auto& [name, value] : rank.counters) rank.live.counters.push_back({name, value});
}

void LiveReader::read_process(std::size_t place, const trace::FlightRank& rank) {
  LiveRank& live = ranks_[place].live;
  live.rank = rank.rank;
  const base::ProcessUse use = rank.joined ? base::read_use(rank.pid) : base::ProcessUse{};
  live.resident_bytes = use.resident_bytes;
  // What it said itself when it left is more exact, and stays when it is gone.
  live.user_ns = std::max({live.user_ns, use.user_ns, rank.costs.process.user_ns});
  live.system_ns = std::max({live.system_ns, use.system_ns, rank.costs.process.system_ns});
}

}  // namespace lockstep::view
