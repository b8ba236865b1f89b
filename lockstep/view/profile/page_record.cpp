#include "lockstep/view/profile/page_record.h"

#include <fmt/chrono.h>

#include <algorithm>
#include <chrono>
#include <map>

#include "lockstep/base/words.h"
#include "lockstep/trace/group_names.h"
#include "lockstep/trace/recorder.h"

namespace lockstep::view {
namespace {

using trace::CollectiveEvent;
using trace::FlightLimits;
using trace::OpenCall;

bool makes_sense(const OpenCall& call) {
  const auto is_rank = [](int rank) { return rank >= 0 && rank < FlightLimits::ranks; };
  const auto awaited = call.awaited_ranks();
  return trace::makes_sense(call.signature.operation, call.signature.dtype, call.signature.reduce_op) &&
         call.peer >= -1 && call.peer < FlightLimits::ranks && call.awaited_count <= FlightLimits::ranks &&
         std::all_of(awaited.begin(), awaited.end(), is_rank);
}

std::vector<CollectiveEvent> last_events(trace::RecordRings& rings, std::size_t most) {
  const trace::Recorder recorder(&rings);
  const std::uint64_t end = recorder.collectives();
  auto calls = recorder.collectives_since(end - std::min<std::uint64_t>(end, most));
  std::erase_if(calls, [](const CollectiveEvent& call) {
    return !trace::makes_sense(call.operation, call.dtype, call.reduce_op);
  });
  return calls;
}

trace::FlightRank read_rank(const ControlPage& page, int local_rank, std::size_t most_events) {
  const RankStatus& status = page.status(local_rank);
  trace::FlightRank rank{.rank = local_rank, .pid = std::max(status.pid.load(), 0)};
  rank.joined = rank.pid != 0;
  rank.left = status.said_goodbye.load() != 0;
  rank.open_calls = trace::read_open_calls(page.open_calls(local_rank));
  std::erase_if(rank.open_calls, [](const OpenCall& call) { return !makes_sense(call); });
  rank.open_calls_left_out = page.open_calls(local_rank).left_out.load();
  rank.events = last_events(page.record(local_rank), most_events);
  rank.costs = {.joined_at_ns = status.joined_at_ns.load(),
                .left_at_ns = status.left_at_ns.load(),
                .process = {.user_ns = status.user_ns.load(),
                            .system_ns = status.system_ns.load(),
                            .most_resident_bytes = status.most_resident_bytes.load()},
                .on_core_ns = status.on_core_ns.load(),
                .core_wait_ns = status.core_wait_ns.load()};
  rank.steps = trace::read_steps(page.record(local_rank).step_sums);
  rank.totals = trace::read_totals(page.totals(local_rank));
  rank.totals_left_out = trace::read_rest(page.totals(local_rank));
  rank.sent = trace::read_sent(page.sent(local_rank));
  return rank;
}

// Ranks that were started by hand, some here and some elsewhere, say in the world's entry who they are.
void name_world_ranks(const std::vector<std::vector<trace::GroupEntry>>& entries,
                      std::vector<trace::FlightRank>& ranks) {
  std::vector<int> found;
  for (const auto& of_rank : entries) {
    const auto world = std::ranges::find_if(of_rank, trace::is_world, &trace::GroupEntry::name);
    if (world == of_rank.end() || world->rank >= FlightLimits::ranks) return;
    if (!found.empty() && world->rank <= found.back()) return;
    found.push_back(world->rank);
  }
  for (std::size_t i = 0; i < ranks.size(); ++i) ranks[i].rank = found[i];
}

std::vector<trace::FlightGroup> join_groups(const std::vector<std::vector<trace::GroupEntry>>& entries,
                                            const std::vector<trace::FlightRank>& ranks) {
  std::map<std::uint32_t, trace::FlightGroup> groups;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    for (const trace::GroupEntry& entry : entries[i]) {
      if (entry.rank < 0 || entry.rank >= entry.ranks || entry.ranks > FlightLimits::ranks) continue;
      if (!groups.contains(entry.number) && groups.size() == FlightLimits::groups) continue;
      trace::FlightGroup& group = groups[entry.number];
      group.number = entry.number;
      group.name = entry.name;
      group.members.resize(static_cast<std::size_t>(entry.ranks), -1);
      group.members[static_cast<std::size_t>(entry.rank)] = ranks[i].rank;
    }
  }
  std::vector<trace::FlightGroup> all;
  for (auto& [number, group] : groups) all.push_back(std::move(group));
  return all;
}

}  // namespace

trace::FlightRecord read_record(const ControlPage& page, const std::vector<int>& world_ranks,
                                int ranks_in_all, std::size_t most_events) {
  trace::FlightRecord record{.host = base::host_name()};
  const auto now = std::chrono::floor<std::chrono::seconds>(std::chrono::system_clock::now());
  record.written_at = fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(now));
  std::vector<std::vector<trace::GroupEntry>> entries;
  const auto all = static_cast<std::size_t>(std::max(ranks_in_all, page.local_ranks()));
  for (int local_rank = 0; local_rank < page.local_ranks(); ++local_rank) {
    record.ranks.push_back(read_rank(page, local_rank, std::min(FlightLimits::events / all, most_events)));
    entries.push_back(trace::read_group_names(page.groups(local_rank)));
  }
  if (world_ranks.empty()) name_world_ranks(entries, record.ranks);
  for (std::size_t i = 0; i < world_ranks.size(); ++i) record.ranks[i].rank = world_ranks[i];
  record.groups = join_groups(entries, record.ranks);
  if (const auto cause = page.first_cause().get()) {
    const auto known = [](int rank) { return rank >= 0 && rank < FlightLimits::ranks ? rank : -1; };
    record.first_cause = {.code = cause->code <= ErrorCode::system ? cause->code : ErrorCode::aborted,
                          .culprit = known(cause->culprit),
                          .reporter = known(cause->reporter),
                          .text = cause->text};
  }
  return record;
}

}  // namespace lockstep::view
