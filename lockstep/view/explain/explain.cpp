#include "lockstep/view/explain/explain.h"

#include <fmt/core.h>

#include <algorithm>
#include <optional>
#include <set>
#include <span>

#include "lockstep/base/words.h"
#include "lockstep/view/explain/situation.h"
#include "lockstep/view/explain/standing.h"

namespace lockstep::view {
namespace {

using trace::FlightRank;
using trace::OpenCall;
using trace::ProcessState;

using Text = std::optional<std::string>;

// In a job that goes on, ranks always wait a moment for each other.
constexpr std::uint64_t long_wait_ns = 1'000'000'000;
constexpr std::size_t most_kinds = 8;
constexpr std::size_t most_links = 4;
constexpr std::size_t most_changes = 16;
constexpr std::size_t most_told_of_a_standstill = 16;  // ranks

// ---- mismatch: one number of one group, and two calls

bool is_same(const Situation::Called& a, const Situation::Called& b) {
  if (a.call != nullptr && b.call != nullptr) return a.call->signature.matches(b.call->signature);
  const auto facts = [](const Situation::Called& what) {
    const auto of = [](const auto& from, std::uint64_t elements) {
      return std::tuple(from.operation, from.dtype, from.reduce_op, elements);
    };
    return what.call != nullptr ? of(what.call->signature, what.call->signature.elements)
                                : of(*what.over, what.over->elements);
  };
  return facts(a) == facts(b);
}

using Kind = std::vector<Situation::Called>;  // ranks that called the same; never empty

std::vector<Kind> kinds_of(const std::vector<Situation::Called>& meeting) {
  std::vector<Kind> kinds;
  for (const Situation::Called& called : meeting) {
    const auto same = std::find_if(kinds.begin(), kinds.end(),
                                   [&](const Kind& kind) { return is_same(kind.front(), called); });
    if (same != kinds.end()) {
      same->push_back(called);
    } else if (kinds.size() < most_kinds) {
      kinds.push_back({called});
    }
  }
  return kinds;
}

std::string names(const Kind& kind) {
  std::vector<int> ranks;
  for (const Situation::Called& called : kind) ranks.push_back(called.rank);
  return base::name_rank_ranges(ranks);
}

Text mismatch(const Situation& situation) {
  for (const auto& meeting : situation.meetings()) {
    const std::vector<Kind> kinds = kinds_of(meeting);
    if (kinds.size() < 2) continue;
    const auto is_smaller = [](const Kind& a, const Kind& b) { return a.size() < b.size(); };
    const auto most = std::max_element(kinds.begin(), kinds.end(), is_smaller);
    auto odd = kinds.end();  // with two of a size, the later rank's
    for (auto kind = kinds.begin(); kind != kinds.end(); ++kind) {
      if (kind != most && (odd == kinds.end() || kind->size() <= odd->size())) odd = kind;
    }
    const Situation::Called& one = odd->front();
    const std::uint32_t group = one.call != nullptr ? one.call->group : one.over->group;
    const std::uint64_t sequence = one.call != nullptr ? one.call->sequence : one.over->sequence;
    return fmt::format("mismatch: as #{} {} {} called {}, but {} called {}{}", sequence,
                       situation.in_group(group), names(*odd), text_of(one), names(*most),
                       text_of(most->front()), kinds.size() > 2 ? ", and others something else again" : "");
  }
  const auto& cause = situation.record().first_cause;
  if (cause && cause->code == ErrorCode::mismatch) return "mismatch: " + cause->text;
  return std::nullopt;
}

// ---- dead and failed ranks

/// "; ranks 0, 2 waited for it in all_reduce #2 (…) in group "world"". `seconds`: say for how long.
std::string who_waited(const Situation& situation, int rank, bool seconds) {
  const auto waiting = situation.waiting_for(rank);
  if (waiting.empty()) return "; no rank waited for it";
  const auto begin = [](const auto& one) { return one.second->begin_ns; };
  const OpenCall& call = *std::ranges::min_element(waiting, {}, begin)->second;
  std::vector<int> ranks;
  std::uint64_t begin_ns = call.begin_ns;
  for (const auto& [standing, theirs] : waiting) {
    if (theirs->group != call.group || theirs->sequence != call.sequence) continue;
    ranks.push_back(standing->rank->rank);
    begin_ns = std::min(begin_ns, theirs->begin_ns);
  }
  const std::string how_long = seconds ? base::duration(situation.since(begin_ns)) + " " : "";
  return "; " + base::name_rank_ranges(ranks) +
         (!situation.record().goes_on ? " waited "
          : ranks.size() == 1         ? " has waited "
                                      : " have waited ") +
         how_long + "for it in " + text_of(situation, call);
}

/// "; ranks 0, 2 were in all_reduce #2 (…) in group "world" with it": in the call that `rank` gave up; "" without such.
std::string who_was_with(const Situation& situation, int rank) {
  for (const auto& meeting : situation.meetings()) {
    std::vector<int> others;
    const OpenCall* given_up = nullptr;
    for (const Situation::Called& called : meeting) {
      if (called.call == nullptr || called.call->failed_ns == 0) continue;
      if (called.rank == rank) given_up = called.call;
      if (called.rank != rank) others.push_back(called.rank);
    }
    if (given_up == nullptr || others.empty()) continue;
    return fmt::format("; {} {} in {} with it", base::name_rank_ranges(others),
                       others.size() == 1 ? "was" : "were", text_of(situation, *given_up));
  }
  return "";
}

/// Where a rank was when it ended: times would only say how soon that was noticed.
std::string last_place(const Situation& situation, const Standing& standing) {
  if (!standing.calls.empty()) return " in the middle of " + text_of(situation, *standing.calls.front());
  if (!standing.rank->joined) return " before it called lockstep::init()";
  if (standing.last_call == nullptr) return " before its first collective";
  return " outside of any collective, after " + text_of(situation, *standing.last_call);
}

std::string dead(const Situation& situation, const Standing& standing) {
  const std::string ending = ending_of(*standing.rank);
  const std::string how = ending.empty()                 ? "is gone"
                          : ending.starts_with("killed") ? "was " + ending
                                                         : ending;
  return "dead rank: " + name_of(situation, standing.rank->rank) + " " + how +
         last_place(situation, standing) + who_waited(situation, standing.rank->rank, false);
}

bool ended_by_itself(const FlightRank& rank) { return rank.ending && !rank.ending->by_launcher; }

Text lost(const Situation& situation) {
  const auto& cause = situation.record().first_cause;
  if (!cause || cause->code != ErrorCode::peer_lost || cause->culprit < 0) return std::nullopt;
  const Standing* const culprit = situation.find(cause->culprit);
  const bool gave_up = cause->reporter == cause->culprit;
  if (gave_up || culprit == nullptr) {
    // Who had others to wait for as well, or was at work on the data, may not have waited for this one just then.
    const bool is_awaited = !situation.waiting_for(cause->culprit).empty();
    const std::string with = is_awaited ? "" : who_was_with(situation, cause->culprit);
    return "failed rank: " + cause->text +
           (with.empty() ? who_waited(situation, cause->culprit, false) : with);
  }
  const bool is_gone = ended_by_itself(*culprit->rank) || culprit->rank->state == ProcessState::gone;
  return is_gone ? dead(situation, *culprit)
                 : "dead rank: " + cause->text + who_waited(situation, cause->culprit, false);
}

/// The one that failed first of its own accord; a survivor that fails because of another comes later.
Text failed_ending(const Situation& situation) {
  const Standing* first = nullptr;
  for (const Standing& standing : situation.standings()) {
    const auto& ending = standing.rank->ending;
    if (!ended_by_itself(*standing.rank) || (ending->exit_code == 0 && ending->signal == 0)) continue;
    if (first == nullptr || ending->order < first->rank->ending->order) first = &standing;
  }
  if (first == nullptr) return std::nullopt;
  return dead(situation, *first);
}

// ---- ranks that wait for one another

/// Two that talk to each other all the time are hardly ever seen when neither waits: while a job goes on,
/// only long waits count.
bool is_over_due(const Situation& situation, const Wait& wait) {
  return !situation.record().goes_on || situation.since(wait.call->begin_ns) >= long_wait_ns;
}

/// Those that can never go on: each waits in some call for one that can never go on either. They are what is
/// left when all others have been taken away.
std::set<int> deadlocked(const Situation& situation) {
  std::set<int> stuck;
  for (const Standing& standing : situation.standings()) {
    if (!standing.waits.empty()) stuck.insert(standing.rank->rank);
  }
  const auto is_stuck = [&](int rank) { return stuck.contains(rank); };
  const auto can_end = [&](const Wait& wait) {
    if (!is_over_due(situation, wait)) return true;
    return wait.any_will_do ? !std::all_of(wait.ranks.begin(), wait.ranks.end(), is_stuck)
                            : std::none_of(wait.ranks.begin(), wait.ranks.end(), is_stuck);
  };
  for (bool changed = true; changed;) {
    changed = std::erase_if(stuck, [&](int rank) {
                const auto& waits = situation.find(rank)->waits;
                return std::any_of(waits.begin(), waits.end(), can_end);
              }) > 0;
  }
  return stuck;
}

struct Link {
  int rank;
  const OpenCall* call;
  int awaited;
};

std::vector<Link> circle_among(const Situation& situation, const std::set<int>& stuck) {
  std::vector<Link> path;
  for (int rank = *stuck.begin();;) {
    const auto again =
        std::find_if(path.begin(), path.end(), [&](const Link& link) { return link.rank == rank; });
    if (again != path.end()) {
      path.erase(path.begin(), again);
      break;
    }
    const Wait& wait = situation.find(rank)->waits.front();
    const int next = *std::find_if(wait.ranks.begin(), wait.ranks.end(),
                                   [&](int awaited) { return stuck.contains(awaited); });
    path.push_back({rank, wait.call, next});
    rank = next;
  }
  const auto least = std::min_element(path.begin(), path.end(),
                                      [](const Link& a, const Link& b) { return a.rank < b.rank; });
  std::rotate(path.begin(), least, path.end());
  return path;
}

Text circle(const Situation& situation) {
  const std::set<int> stuck = deadlocked(situation);
  if (stuck.empty()) return std::nullopt;
  const std::vector<Link> links = circle_among(situation, stuck);
  const bool messages = std::all_of(links.begin(), links.end(), [](const Link& link) {
    return link.call->signature.operation == Operation::receive ||
           link.call->signature.operation == Operation::send;
  });
  std::string text = messages ? "circle of messages: " : "crossed calls: ";
  const std::string waits = situation.record().goes_on ? " waits in " : " waited in ";
  for (std::size_t i = 0; i < std::min(links.size(), most_links); ++i) {
    text += fmt::format("{}{}{}{} for rank {}", i == 0 ? "rank " : ", rank ", links[i].rank, waits,
                        text_of(situation, *links[i].call), links[i].awaited);
  }
  if (links.size() > most_links) text += fmt::format(", and so on through {} ranks", links.size());
  return text + (messages ? ": all receive first, or all send much"
                          : ": all ranks have to make these calls in one order");
}

bool is_stopped(const Situation& situation, int rank) {
  const Standing* const standing = situation.find(rank);
  return standing != nullptr && standing->rank->state == ProcessState::stopped;
}

/// Ranks that others waited for and that waited for nobody themselves; where some are stopped, those.
std::vector<int> late_ranks(const Situation& situation) {
  const auto over_due = [&](const Wait& wait) { return is_over_due(situation, wait); };
  std::set<int> late;
  for (const Standing& standing : situation.standings()) {
    for (const Wait& wait : standing.waits) {
      if (!is_over_due(situation, wait)) continue;
      for (const int rank : wait.ranks) {
        const Standing* const awaited = situation.find(rank);
        if (awaited == nullptr || std::ranges::none_of(awaited->waits, over_due)) late.insert(rank);
      }
    }
  }
  const auto stopped = [&](int rank) { return is_stopped(situation, rank); };
  if (std::any_of(late.begin(), late.end(), stopped))
    std::erase_if(late, [&](int rank) { return !stopped(rank); });
  return {late.begin(), late.end()};
}

Text slow(const Situation& situation) {
  const std::vector<int> late = late_ranks(situation);
  if (late.empty()) return std::nullopt;
  const Standing* const first = situation.find(late.front());
  if (first != nullptr && first->rank->state == ProcessState::gone && first->rank->ending == std::nullopt)
    return dead(situation, *first);
  const std::string was = situation.record().goes_on ? " is " : " was ";
  std::string text =
      late.size() == 1 ? "slow rank: " : "slow ranks: " + base::name_rank_ranges(late) + "; of these ";
  text += name_of(situation, late.front());
  if (first != nullptr) text += was + place_of(situation, *first);
  return text + who_waited(situation, late.front(), true);
}

std::uint64_t longest_wait(const Situation& situation) {
  std::uint64_t longest = 0;
  for (const Standing& standing : situation.standings()) {
    for (const Wait& wait : standing.waits) longest = std::max(longest, situation.since(wait.call->begin_ns));
  }
  return longest;
}

// ---- the answer

Text all_well(const Situation& situation) {
  const bool has_failed = situation.record().first_cause.has_value();
  const std::uint64_t longest = longest_wait(situation);
  if (!situation.record().goes_on || has_failed || longest >= long_wait_ns) return std::nullopt;
  return "nothing is wrong: " + (longest == 0 ? "no rank waits for another"
                                              : "no rank waits longer than " + base::duration(longest));
}

/// An error for which no rank's absence is to blame: there is only what was said of it.
Text other_failure(const Situation& situation) {
  const auto& cause = situation.record().first_cause;
  const bool is_told_by_waits =
      !cause || cause->code == ErrorCode::timeout || cause->code == ErrorCode::peer_lost;
  if (is_told_by_waits) return std::nullopt;
  return (cause->reporter >= 0 ? fmt::format("failed rank: rank {} said: ", cause->reporter)
                               : std::string("failure: ")) +
         cause->text;
}

std::string cause_of(const Situation& situation) {
  for (const auto& look : {all_well, mismatch, lost, other_failure, circle, slow, failed_ending}) {
    if (Text text = look(situation)) return std::move(*text);
  }
  const auto& cause = situation.record().first_cause;
  return cause ? "failure: " + cause->text : "nothing is wrong: no rank waited for another";
}

// What a file brings along must not move the terminal's cursor.
std::string one_line(std::string text) {
  const auto is_control = [](char c) { return static_cast<unsigned char>(c) < ' ' || c == '\x7f'; };
  std::replace_if(text.begin(), text.end(), is_control, ' ');
  return text + "\n";
}

/// Who came and went, where ranks may.
std::string changes_of(const trace::FlightRecord& record) {
  if (record.changes.empty()) return "";
  const std::size_t shown = std::min(record.changes.size(), most_changes);
  const std::uint64_t before = record.changes_left_out + record.changes.size() - shown;
  std::string text = one_line(
      "who came and went" +
      (before == 0 ? std::string()
                   : fmt::format(", after {}", base::counted(static_cast<std::int64_t>(before), "change"))) +
      ":");
  for (const trace::FlightChange& change : std::span(record.changes).last(shown)) {
    const std::uint64_t ago = record.at_ns > change.at_ns ? record.at_ns - change.at_ns : 0;
    text += one_line("  " + base::duration(ago) + " before: " + change.text);
  }
  return text;
}

}  // namespace

std::string explain(const trace::FlightRecord& record) {
  const Situation situation(record);
  std::string text = one_line(cause_of(situation));
  for (const Standing& standing : situation.standings())
    text += one_line("  " + line_of(situation, standing));
  if (const auto& cause = record.first_cause) {
    const std::string who = cause->reporter < 0 ? "the launcher" : fmt::format("rank {}", cause->reporter);
    text += one_line("first cause, found by " + who + ": " + cause->text);
  }
  text += changes_of(record);
  const std::string job = record.job.empty() ? "" : "job " + record.job + ", ";
  return text + one_line(job + "host " + record.host + ", " + record.written_at);
}

std::string explain_standstill(const trace::FlightRecord& record) {
  const Situation situation(record);
  std::string text = one_line(cause_of(situation));
  std::vector<const Standing*> elsewhere;
  for (const Standing& standing : situation.standings()) {
    if (standing.waits.empty()) elsewhere.push_back(&standing);
  }
  if (elsewhere.size() == 1) return text;  // the cause tells of it
  for (std::size_t i = 0; i < std::min(elsewhere.size(), most_told_of_a_standstill); ++i)
    text += one_line("  " + line_of(situation, *elsewhere[i]));
  if (elsewhere.size() > most_told_of_a_standstill)
    text += fmt::format("  and {} more\n", elsewhere.size() - most_told_of_a_standstill);
  return text;
}

}  // namespace lockstep::view
