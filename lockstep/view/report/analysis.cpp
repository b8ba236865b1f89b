#include "lockstep/view/report/analysis.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <set>
#include <sstream>
#include <tuple>

#include "lockstep/base/size_bin.h"
#include "lockstep/trace/group_names.h"
#include "lockstep/view/explain/explain.h"
#include "lockstep/view/profile/run_profile.h"
#include "lockstep/view/report/meeting_sums.h"
#include "lockstep/view/report/mpi_run.h"
#include "lockstep/view/report/steps.h"
#include "lockstep/view/report/thresholds.h"

namespace lockstep::view {
namespace {

using trace::CollectiveEvent;
using trace::FlightRank;
using trace::FlightRecord;

const FlightRank* rank_in(const RunData& run, int rank) {
  if (!run.record) return nullptr;
  const auto found = std::ranges::find(run.record->ranks, rank, &FlightRank::rank);
  return found == run.record->ranks.end() ? nullptr : &*found;
}

void add_step_meetings(const RunData& run, const std::vector<StepsOfRank>& ranks, Analysis& analysis) {
  MeetingSums sums(Meetings::of_steps);
  std::map<StepsOfRank::Key, std::vector<Arrival>> by_step;
  std::size_t training = 0;
  for (std::size_t place = 0; place < ranks.size(); ++place) {
    training += ranks[place].steps().empty() ? 0 : 1;
    for (const auto& [key, step] : ranks[place].steps())
      by_step[key].push_back({place, step.event->last_gradient_ns});
  }
  std::size_t to_skip = analysis.steps ? analysis.steps->warm_up : 0, whole = 0;
  for (auto& [key, arrivals] : by_step) {
    if (arrivals.size() != training || training < 2 || to_skip > 0) {
      to_skip -= to_skip > 0 ? 1 : 0;
      continue;
    }
    sums.add(std::move(arrivals));
    ++whole;
  }
  if (whole > 0) analysis.meetings.push_back(sums.finish(run.timeline.ranks));
}

void add_call_meetings(const RunData& run, const std::vector<StepsOfRank>& steps, Analysis& analysis) {
  std::map<std::pair<std::uint32_t, std::uint64_t>, std::pair<Operation, std::vector<Arrival>>> by_call;
  std::map<std::uint32_t, std::size_t> most;  // ranks of a group
  for (std::size_t place = 0; place < run.timeline.ranks.size(); ++place) {
    for (const CollectiveEvent& call : run.timeline.ranks[place].calls) {
      if (is_message(call.operation) || call.failed != 0 || steps[place].is_of_a_step(call)) continue;
      auto& [operation, arrivals] = by_call[{call.group, call.sequence}];
      operation = call.operation;
      arrivals.push_back({place, call.begin_ns});
      most[call.group] = std::max(most[call.group], arrivals.size());
    }
  }
  std::map<Operation, MeetingSums> sums;
  for (auto& [key, call] : by_call) {
    auto& [operation, arrivals] = call;
    if (arrivals.size() < 2 || arrivals.size() != most[key.first]) continue;
    sums.try_emplace(operation, std::string(to_string(operation))).first->second.add(std::move(arrivals));
  }
  for (auto& [operation, of] : sums) analysis.meetings.push_back(of.finish(run.timeline.ranks));
}

double total_wait(const Meetings& meetings) { return meetings.wait_ns * static_cast<double>(meetings.count); }

double ns_of(std::uint64_t ns) { return static_cast<double>(ns); }

RankFacts facts_of(const FlightRank& rank) {
  RankFacts facts{.rank = rank.rank, .pid = rank.pid};
  const RankCosts known = costs_of(rank);
  if (rank.costs.joined_at_ns > 0) facts.elapsed_ns = ns_of(known.costs.elapsed_ns);
  facts.user_ns = ns_of(known.costs.user_ns);
  facts.system_ns = ns_of(known.costs.system_ns);
  if (rank.costs.on_core_ns > 0)
    facts.core_share =
        ns_of(rank.costs.on_core_ns) / (ns_of(rank.costs.on_core_ns) + ns_of(rank.costs.core_wait_ns));
  facts.most_resident_bytes = known.costs.most_resident_bytes;
  facts.communication_ns = ns_of(known.communication_ns);
  facts.waited_ns = ns_of(rank.steps.exposed_wait_ns);
  for (const trace::TotalsRow& row : rank.totals) {
    const double share =
        row.totals.ns == 0 ? 0 : std::min(1.0, ns_of(row.totals.waited_ns) / ns_of(row.totals.ns));
    facts.waited_ns += ns_of(row.totals.blocked_ns) * share;
  }
  // Of a process with one thread: what it did not use a core for is not more than the rest of its time.
  const double used = facts.user_ns + facts.system_ns;
  if (used > 0 && facts.elapsed_ns > 0 && used <= 1.05 * facts.elapsed_ns)
    facts.burnt_ns = std::clamp(used - (facts.elapsed_ns - facts.waited_ns), 0.0, facts.waited_ns);
  return facts;
}

void find_ranks(const RunData& run, Analysis& analysis) {
  std::map<int, RankFacts> ranks;
  for (const RankTimeline& rank : run.timeline.ranks) {
    RankFacts& facts = ranks[rank.rank];
    const FlightRank* const record = rank_in(run, rank.rank);
    facts = record != nullptr ? facts_of(*record) : RankFacts{.rank = rank.rank};
    facts.pid = rank.pid;
    facts.host = rank.host;
    facts.left_out = rank.left_out;
    std::vector<double> transfers;
    const BlockingCalls blocking(record);
    for (const CollectiveEvent& call : rank.calls) {
      // One that is under way beside the program's own work ends when the program looks.
      if (rank.steps.empty() && !blocking.contains(call)) continue;
      if (!is_message(call.operation) && call.operation != Operation::barrier && call.failed == 0)
        transfers.push_back(ns_of(call.end_ns - std::min(call.end_ns, call.arrived_ns)));
    }
    facts.transfers = transfers.size();
    facts.transfer_ns = median_of(std::move(transfers));
  }
  if (run.record) {
    for (const FlightRank& rank : run.record->ranks) {
      if (!ranks.contains(rank.rank)) ranks[rank.rank] = facts_of(rank);
    }
  }
  std::set<std::string> hosts;
  for (auto& [number, facts] : ranks) {
    if (!facts.host.empty()) hosts.insert(facts.host);
    analysis.ranks.push_back(std::move(facts));
  }
  analysis.host_count = std::max<std::size_t>(hosts.size(), 1);
  for (const std::string& host : hosts) analysis.hosts += (analysis.hosts.empty() ? "" : ", ") + host;
}

void find_links(const FlightRecord& record, Analysis& analysis) {
  for (const FlightRank& rank : record.ranks) {
    for (const trace::Sent& sent : rank.sent)
      analysis.links.push_back(
          {.from = rank.rank, .to = sent.peer, .bytes = ns_of(sent.bytes), .busy_ns = ns_of(sent.busy_ns)});
  }
  std::ranges::stable_sort(analysis.links, std::greater<>(), &LinkFacts::bytes);
}

void add_means(const RunData& run, Analysis& analysis) {
  double known = 0;
  for (const RankFacts& rank : analysis.ranks) {
    if (rank.elapsed_ns <= 0) continue;
    ++known;
    analysis.elapsed_ns += rank.elapsed_ns;
    analysis.communication_ns += rank.communication_ns;
    analysis.waited_ns += rank.waited_ns;
  }
  if (known > 0) {
    for (double* sum : {&analysis.elapsed_ns, &analysis.communication_ns, &analysis.waited_ns}) *sum /= known;
  }
  for (const RankTimeline& rank : run.timeline.ranks) {
    for (const trace::SpanEvent& span : rank.spans) {
      if (trace::is_of_thread(span) && name_of(rank, span) == "data")
        analysis.data_ns += ns_of(span.end_ns - span.begin_ns) / ns_of(run.timeline.ranks.size());
    }
  }
}

struct SizeKey {
  Operation operation;
  bool has_counts;
  int size_bin;
  auto operator<=>(const SizeKey&) const = default;  // NOLINT(modernize-use-nullptr)
};

void add_sizes(const FlightRecord& record, const std::optional<MachineLimits>& limits, Analysis& analysis) {
  std::map<std::uint32_t, const trace::FlightGroup*> groups;
  for (const trace::FlightGroup& group : record.groups) groups[group.number] = &group;
  std::map<SizeKey, SizeRow> rows;
  std::map<SizeKey, double> moved;
  for (const FlightRank& rank : record.ranks) {
    for (const trace::TotalsRow& total : rank.totals) {
      const trace::CallTotals& sums = total.totals;
      const auto group = groups.find(total.of.group);
      const bool is_named = group != groups.end() && trace::is_for_named_operations(group->second->name);
      analysis.calls += sums.calls;
      if (is_named && is_message(total.of.operation)) {
        analysis.control_messages += sums.calls;
        analysis.control_ns += ns_of(sums.blocked_ns);
      } else if (base::most_bytes_of_bin(total.of.size_bin) <= Thresholds::small_call_bytes) {
        analysis.small_calls += sums.calls;
        analysis.small_calls_ns += ns_of(sums.blocked_ns);
      }
      const SizeKey key{total.of.operation, total.of.has_counts, total.of.size_bin};
      SizeRow& row = rows[key];
      row.operation = key.operation;
      row.has_counts = key.has_counts;
      row.size_bin = key.size_bin;
      row.calls += sums.calls;
      row.bytes += sums.bytes;
      row.ns += sums.ns;
      row.waited_ns += sums.waited_ns;
      row.blocked_ns += sums.blocked_ns;
      const auto members = group == groups.end() ? record.ranks.size() : group->second->members.size();
      moved[key] += bus_bytes(key.operation, key.has_counts, static_cast<int>(members), ns_of(sums.bytes));
      if (limits && !key.has_counts)
        row.limit_bytes_per_second = limits->bus_bandwidth(key.operation, static_cast<int>(members));
    }
  }
  for (auto& [key, row] : rows) {
    const std::uint64_t transfer = row.ns - std::min(row.ns, row.waited_ns);
    if (row.bytes > 0 && transfer > 0) row.bus_bytes_per_second = moved[key] / (ns_of(transfer) * 1e-9);
    analysis.sizes.push_back(row);
  }
  std::ranges::stable_sort(analysis.sizes, std::greater<>(),
                           [](const SizeRow& row) { return std::pair(row.blocked_ns, row.ns); });
}

void find_changes(const FlightRecord& record, Analysis& analysis) {
  std::uint64_t begin = ~std::uint64_t{0};  // of those that joined: a rank that came back did so later
  for (const FlightRank& rank : record.ranks) {
    if (rank.costs.joined_at_ns > 0) begin = std::min(begin, rank.costs.joined_at_ns);
  }
  for (const trace::FlightChange& change : record.changes)
    analysis.changes.push_back(
        {ns_of(change.at_ns - std::min(change.at_ns, begin)), change.view, change.text});
  analysis.changes_left_out = record.changes_left_out;
}

/// The one that ended badly before all others, of its own accord.
const FlightRank* first_to_fail(const FlightRecord& record) {
  const FlightRank* first = nullptr;
  for (const FlightRank& rank : record.ranks) {
    if (!rank.ending || rank.ending->by_launcher || (rank.ending->exit_code == 0 && rank.ending->signal == 0))
      continue;
    if (first == nullptr || rank.ending->order < first->ending->order) first = &rank;
  }
  return first;
}

void find_failure(const FlightRecord& record, Analysis& analysis) {
  const FlightRank* const first = first_to_fail(record);
  if (!record.first_cause && first == nullptr) return;
  Failure failure;
  const bool is_blamed = record.first_cause && record.first_cause->culprit >= 0;
  if (is_blamed || first != nullptr) failure.rank = is_blamed ? record.first_cause->culprit : first->rank;
  std::istringstream text(explain(record));
  std::getline(text, failure.cause);
  for (std::string line; std::getline(text, line);)
    failure.lines.push_back(line.substr(std::min(line.find_first_not_of(' '), line.size())));
  analysis.failure = std::move(failure);
}

}  // namespace

double median_of(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  if (values.size() % 2 == 1) return *middle;
  return (*middle + *std::max_element(values.begin(), middle)) / 2;
}

Analysis analyse(const RunData& run, const ReportOptions& options) {
  Analysis analysis{.name = run.name,
                    .job = run.timeline.job,
                    .clock_error_ns = run.timeline.clock_error_ns,
                    .notes = run.notes};
  find_ranks(run, analysis);
  std::vector<StepsOfRank> ranks;
  for (const RankTimeline& rank : run.timeline.ranks) ranks.emplace_back(rank, rank_in(run, rank.rank));
  analysis.steps = step_facts(ranks);
  // Of ranks that only the record knows there are no steps.
  if (analysis.steps) {
    std::vector<PhaseTimes> by_rank(analysis.ranks.size());
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      const auto found = std::ranges::find(analysis.ranks, run.timeline.ranks[i].rank, &RankFacts::rank);
      by_rank[static_cast<std::size_t>(found - analysis.ranks.begin())] = analysis.steps->by_rank[i];
    }
    analysis.steps->by_rank = std::move(by_rank);
  }
  add_step_meetings(run, ranks, analysis);
  add_call_meetings(run, ranks, analysis);
  add_mpi_calls(run, analysis);
  std::ranges::stable_sort(analysis.meetings, std::greater<>(), total_wait);
  if (run.record) {
    if (analysis.job.empty()) analysis.job = run.record->job;
    if (analysis.hosts.empty()) analysis.hosts = run.record->host;
    analysis.written_at = run.record->written_at;
    add_sizes(*run.record, options.limits, analysis);
    find_links(*run.record, analysis);
    find_changes(*run.record, analysis);
    analysis.ended_by = run.record->ended_by;
    if (analysis.ended_by == 0) find_failure(*run.record, analysis);
  }
  add_means(run, analysis);
  return analysis;
}

}  // namespace lockstep::view
