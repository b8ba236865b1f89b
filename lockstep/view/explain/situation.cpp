#include "lockstep/view/explain/situation.h"

#include <fmt/core.h>

#include <algorithm>

#include "lockstep/execute/message.h"

namespace lockstep::view {
namespace {

using trace::CollectiveEvent;
using trace::FlightRank;
using trace::OpenCall;
using trace::ProcessState;

// A wait looks around every few milliseconds; after this long without a look nobody waits in the call.
constexpr std::uint64_t stale_ns = 1'000'000'000;

Situation::Key key_of(const OpenCall& call) { return {call.group, call.sequence}; }
Situation::Key key_of(const CollectiveEvent& event) { return {event.group, event.sequence}; }

}  // namespace

Situation::Situation(const trace::FlightRecord& record) : record_(record) {
  for (const trace::FlightGroup& group : record.groups) groups_.emplace(group.number, &group);
  find_moment();
  for (const FlightRank& rank : record.ranks) place(rank);
  gather_meetings();
  for (Standing& standing : standings_) find_waits(standing);
}

void Situation::find_moment() {
  const bool is_lost = record_.first_cause && record_.first_cause->code == ErrorCode::peer_lost;
  std::uint64_t failed_ns = 0;
  for (const FlightRank& rank : record_.ranks) {
    for (const OpenCall& call : rank.open_calls) {
      if (call.failed_ns == 0) continue;
      const bool counts = failed_ns == 0 || (call.failed_ns > failed_ns) == is_lost;
      if (counts) failed_ns = call.failed_ns;
    }
  }
  moment_ns_ = failed_ns != 0 ? failed_ns : record_.at_ns;
}

void Situation::place(const FlightRank& rank) {
  Standing standing{.rank = &rank};
  for (const OpenCall& call : rank.open_calls) {
    if (call.begin_ns <= moment_ns_) {
      standing.calls.push_back(&call);
    } else if (standing.next_call == nullptr || call.begin_ns < standing.next_call->begin_ns) {
      standing.next_call = &call;
    }
  }
  for (const CollectiveEvent& event : rank.events) {
    const bool counts = event.failed == 0 && event.end_ns <= moment_ns_;
    if (counts && (standing.last_call == nullptr || event.end_ns >= standing.last_call->end_ns))
      standing.last_call = &event;
  }
  standings_.push_back(std::move(standing));
}

void Situation::gather_meetings() {
  std::map<Key, std::map<int, Called>> found;
  std::map<Key, std::uint64_t> begun;
  for (const FlightRank& rank : record_.ranks) {
    for (const OpenCall& call : rank.open_calls) {
      if (is_message(call.signature.operation)) continue;
      found[key_of(call)][rank.rank] = {.rank = rank.rank, .call = &call};
      if (call.begin_ns <= moment_ns_) there_[key_of(call)].insert(rank.rank);
      const auto [first, is_new] = begun.emplace(key_of(call), call.begin_ns);
      first->second = std::min(first->second, call.begin_ns);
    }
  }
  for (const FlightRank& rank : record_.ranks) {
    for (const CollectiveEvent& event : rank.events) {
      const auto meeting = found.find(key_of(event));
      if (meeting == found.end() || is_message(event.operation) || event.failed != 0) continue;
      meeting->second.try_emplace(rank.rank, Called{.rank = rank.rank, .over = &event});
      if (event.begin_ns <= moment_ns_) there_[key_of(event)].insert(rank.rank);
    }
  }
  std::vector<std::pair<std::uint64_t, Key>> order;
  for (const auto& [key, begin_ns] : begun) order.emplace_back(begin_ns, key);
  std::sort(order.begin(), order.end());
  for (const auto& [begin_ns, key] : order) {
    std::vector<Called>& meeting = meetings_.emplace_back();
    for (const auto& [rank, called] : found[key]) meeting.push_back(called);
  }
}

void Situation::find_waits(Standing& standing) {
  for (const OpenCall* call : standing.calls) {
    Wait wait{.call = call, .ranks = awaited(standing, *call)};
    wait.any_will_do = call->signature.operation == Operation::receive && call->peer == any_source;
    if (!wait.ranks.empty()) standing.waits.push_back(std::move(wait));
  }
}

// For whom the rank itself said that it waits, if it looked lately; before its first look, those that were
// not there.
std::vector<int> Situation::awaited(const Standing& standing, const OpenCall& call) const {
  const ProcessState state = standing.rank->state;
  const bool has_failed = call.failed_ns != 0;
  const bool is_silent = state == ProcessState::stopped || state == ProcessState::gone;
  const std::uint64_t sign_of_life = std::max(call.begin_ns, call.looked_ns);
  if (!has_failed && (is_silent || since(sign_of_life) > stale_ns)) return {};
  if (call.looked_ns == 0) return not_there(standing.rank->rank, call);
  if (call.arrived_ns > call.looked_ns) return {};
  std::set<int> ranks(call.awaited_ranks().begin(), call.awaited_ranks().end());
  if (call.awaited_count > ranks.size()) {
    const auto more = not_there(standing.rank->rank, call);
    ranks.insert(more.begin(), more.end());
  }
  ranks.erase(standing.rank->rank);
  return {ranks.begin(), ranks.end()};
}

std::vector<int> Situation::not_there(int rank, const OpenCall& call) const {
  std::vector<int> ranks = members(call.group);
  if (is_message(call.signature.operation)) {
    const auto group = groups_.find(call.group);
    if (call.peer != any_source) {
      const auto peer = static_cast<std::size_t>(call.peer);
      const bool is_known = group != groups_.end() && peer < group->second->members.size();
      ranks = {is_known ? group->second->members[peer] : -1};
    }
    std::erase(ranks, -1);
  } else if (call.arrived_ns != 0) {
    return {};
  } else {
    const auto there = there_.find(key_of(call));
    std::erase_if(ranks, [&](int other) { return there != there_.end() && there->second.contains(other); });
  }
  std::erase(ranks, rank);
  return ranks;
}

std::vector<int> Situation::members(std::uint32_t group) const {
  const auto found = groups_.find(group);
  if (found == groups_.end()) return {};
  std::vector<int> ranks = found->second->members;
  std::sort(ranks.begin(), ranks.end());
  std::erase(ranks, -1);
  return ranks;
}

const Standing* Situation::find(int world_rank) const {
  const auto found =
      std::lower_bound(standings_.begin(), standings_.end(), world_rank,
                       [](const Standing& standing, int rank) { return standing.rank->rank < rank; });
  return found != standings_.end() && found->rank->rank == world_rank ? &*found : nullptr;
}

std::vector<std::pair<const Standing*, const OpenCall*>> Situation::waiting_for(int world_rank) const {
  std::vector<std::pair<const Standing*, const OpenCall*>> found;
  for (const Standing& standing : standings_) {
    const auto wait = std::find_if(standing.waits.begin(), standing.waits.end(), [&](const Wait& each) {
      return std::binary_search(each.ranks.begin(), each.ranks.end(), world_rank);
    });
    if (wait != standing.waits.end()) found.emplace_back(&standing, wait->call);
  }
  return found;
}

std::string Situation::in_group(std::uint32_t number) const {
  const auto found = groups_.find(number);
  if (found == groups_.end()) return fmt::format("in a group without a name ({})", number);
  return "in group \"" + found->second->name + "\"";
}

}  // namespace lockstep::view
