#include "lockstep/view/report/document.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "lockstep/base/size_bin.h"
#include "lockstep/base/words.h"
#include "lockstep/view/report/thresholds.h"

namespace lockstep::view {
namespace {

/// std::hypot() has another name since glibc 2.35, which systems with an older one lack.
double distance(double across, double up) { return std::sqrt(across * across + up * up); }

constexpr const char* phase_names[phase_count] = {
    "computing", "waiting for data", "waiting for others", "exposed transfer", "optimizer", "checkpoint",
    "other"};

std::string name_of_phase(std::size_t phase) { return phase_names[phase]; }

double ms(double ns) { return std::round(ns / 1e3) / 1e3; }

std::string bytes_text(double bytes) {
  static constexpr const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  std::size_t unit = 0;
  for (; bytes >= 1023.5 && unit + 1 < std::size(units); ++unit) bytes /= 1024;
  return unit == 0 ? fmt::format("{:.0f} B", bytes) : fmt::format("{:.1f} {}", bytes, units[unit]);
}

double share_of(double part, double whole) { return whole > 0 ? part / whole : 0; }

void add_row(ReportTable& table, std::vector<std::string> cells) {
  if (table.rows.size() < most_rows) {
    table.rows.push_back(std::move(cells));
  } else if (table.rows.size() == most_rows) {
    table.note += table.note.empty() ? "" : " ";
    table.note += fmt::format("Of more than {} rows the first are here.", most_rows);
    table.rows.emplace_back(cells.size(), "...");
  }
}

ReportTable step_table(const StepFacts& steps) {
  ReportTable table{.title = "Where a step goes",
                    .note = fmt::format("Means of the ranks, of {} steps like most; without the first {}.",
                                        steps.steps, steps.warm_up),
                    .columns = {"part", "time", "share"}};
  if (steps.long_steps > 0)
    table.note += fmt::format(
        " {} took more than twice the median, {} more in all (evaluation, checkpoints, other "
        "programs).",
        base::counted(static_cast<std::int64_t>(steps.long_steps), "step"), time_text(steps.long_extra_ns));
  for (std::size_t p = 0; p < phase_count; ++p)
    table.rows.push_back(
        {name_of_phase(p), time_text(steps.mean[p]), percent_text(share_of(steps.mean[p], steps.mean_ns))});
  table.rows.push_back({"achieved step", time_text(steps.mean_ns), "100 %"});
  return table;
}

ReportChart step_chart(const StepFacts& steps) {
  ReportChart chart{
      .kind = ReportChart::Kind::waterfall, .title = "From the ideal step to the achieved one", .unit = "ms"};
  chart.series.push_back({"a step", {}});
  for (std::size_t p = 0; p < phase_count; ++p) {
    if (p > 0 && steps.mean[p] < 1e-3 * steps.mean_ns) continue;
    chart.labels.push_back(name_of_phase(p));
    chart.series[0].values.push_back(ms(steps.mean[p]));
  }
  chart.labels.emplace_back("achieved step");
  chart.series[0].values.push_back(ms(steps.mean_ns));
  return chart;
}

ReportChart rank_chart(const Analysis& analysis) {
  ReportChart chart{.kind = ReportChart::Kind::stacked, .title = "A step of each rank", .unit = "ms"};
  const auto shown = std::min(analysis.ranks.size(), most_rows);
  for (std::size_t r = 0; r < shown; ++r)
    chart.labels.push_back(fmt::format("rank {}", analysis.ranks[r].rank));
  for (std::size_t p = 0; p < phase_count; ++p) {
    ReportChart::Series series{name_of_phase(p), {}};
    for (std::size_t r = 0; r < shown; ++r) series.values.push_back(ms(analysis.steps->by_rank[r][p]));
    chart.series.push_back(std::move(series));
  }
  return chart;
}

ReportTable lateness_table(const Analysis& analysis) {
  ReportTable table{
      .title = "Who is late",
      .note =
          "Of each meeting of all ranks of a group: who came last, and how long after the median of "
          "the others (medians of the meetings to which it came last). Gain: how much earlier each "
          "would be if it came with the last of the others.",
      .columns = {"meeting", "how often", "mean wait", "rank", "last in", "late", "after the first", "gain"}};
  for (const Meetings& meetings : analysis.meetings) {
    for (const Lateness& late : meetings.ranks) {
      add_row(
          table,
          {meetings.kind, std::to_string(meetings.count), time_text(meetings.wait_ns),
           std::to_string(late.rank),
           percent_text(share_of(static_cast<double>(late.last), static_cast<double>(meetings.count))),
           time_text(late.median_late_ns), time_text(late.median_behind_first_ns), time_text(late.gain_ns)});
    }
  }
  return table;
}

ReportTable changes_table(const Analysis& analysis) {
  ReportTable table{.title = "Who came and went",
                    .note = "After the first rank had joined. A view is a list of who is there, by number.",
                    .columns = {"after", "what", "view"}};
  if (analysis.changes_left_out > 0)
    table.note += fmt::format(" {} before these are not kept.",
                              base::counted(static_cast<std::int64_t>(analysis.changes_left_out), "change"));
  for (const ViewChange& change : analysis.changes)
    add_row(table, {time_text(change.after_ns), change.text, std::to_string(change.view)});
  return table;
}

ReportTable overlap_table(const StepFacts& steps) {
  ReportTable table{
      .title = "Calls of a step",
      .note =
          "In their order within the step, as a rule one for each bucket. Exposed is what of a call "
          "comes after the last gradient.",
      .columns = {"call", "operation", "size", "under way", "exposed", "covered"}};
  for (std::size_t i = 0; i < steps.calls.size(); ++i) {
    const StepCall& call = steps.calls[i];
    add_row(table, {std::to_string(i + 1), std::string(to_string(call.operation)), bytes_text(call.bytes),
                    time_text(call.under_way_ns), time_text(call.exposed_ns),
                    percent_text(1 - share_of(call.exposed_ns, call.under_way_ns))});
  }
  return table;
}

/// "17 B to 32 B": the sizes of a class.
std::string size_text(int bin) {
  if (bin == 0) return "0 B";
  const auto least = static_cast<double>(base::most_bytes_of_bin(bin - 1));
  const auto most = static_cast<double>(base::most_bytes_of_bin(bin));
  return bytes_text(least + (least < 1024 ? 1 : 0)) + " to " + bytes_text(most);
}

bool has_limit(const SizeRow& row) { return row.limit_bytes_per_second > 0; }

double in_gigabytes(double bytes) { return std::round(bytes * 1e-6) / 1e3; }

ReportTable size_table(const Analysis& analysis) {
  ReportTable table{
      .title = "Sizes",
      .note =
          "All calls of all ranks. Bus bandwidth is what a rank moves a second from the arrival of all "
          "to the end, comparable between operations.",
      .columns = {"operation", "size", "calls", "in the way", "waiting", "transfer", "bus bandwidth"}};
  const bool has_limits = std::ranges::any_of(analysis.sizes, has_limit);
  if (has_limits) {
    table.columns.emplace_back("of the limit");
    table.note += " The limit is what this machine's memory, or between hosts its links, allow.";
  }
  for (const SizeRow& row : analysis.sizes) {
    const double bus = row.bus_bytes_per_second;
    std::vector<std::string> cells = {
        name_of_call(row.operation, row.has_counts),
        size_text(row.size_bin),
        std::to_string(row.calls),
        time_text(static_cast<double>(row.blocked_ns)),
        time_text(static_cast<double>(row.waited_ns)),
        time_text(static_cast<double>(row.ns - std::min(row.ns, row.waited_ns))),
        bus > 0 ? rate_text(bus) : "-"};
    if (has_limits)
      cells.push_back(bus > 0 && has_limit(row) ? percent_text(bus / row.limit_bytes_per_second) : "-");
    add_row(table, std::move(cells));
  }
  return table;
}

ReportChart size_chart(const Analysis& analysis) {
  constexpr std::size_t most_bars = 16;
  constexpr double least_bar = 1e6;  // what is below is no transfer to speak of
  ReportChart chart{
      .kind = ReportChart::Kind::side_by_side, .title = "Bus bandwidth by size", .unit = "GB/s"};
  chart.series.push_back({"bus bandwidth", {}});
  chart.series.push_back({"what this machine allows", {}});
  for (const SizeRow& row : analysis.sizes) {
    if (row.bus_bytes_per_second < least_bar || chart.labels.size() == most_bars) continue;
    chart.labels.push_back(
        fmt::format("{} {}", to_string(row.operation),
                    bytes_text(static_cast<double>(base::most_bytes_of_bin(row.size_bin)))));
    chart.series[0].values.push_back(in_gigabytes(row.bus_bytes_per_second));
    chart.series[1].values.push_back(in_gigabytes(row.limit_bytes_per_second));
  }
  if (std::ranges::all_of(chart.series[1].values, [](double limit) { return limit == 0; }))
    chart.series.pop_back();
  return chart;
}

ReportTable mpi_table(const Analysis& analysis) {
  ReportTable table{.title = "Calls of MPI",
                    .note =
                        "All calls of all ranks. Waiting: in blocking collectives for all, until the last "
                        "rank had come; of rooted ones, of "
                        "messages and of what does not block it is not known.",
                    .columns = {"routine", "calls", "bytes", "time", "waiting", "share of the time in MPI"}};
  double all = 0;
  for (const MpiRow& row : analysis.mpi) all += row.ns;
  for (const MpiRow& row : analysis.mpi)
    add_row(table, {row.routine, std::to_string(row.calls), bytes_text(static_cast<double>(row.bytes)),
                    time_text(row.ns), row.waited_ns > 0 ? time_text(row.waited_ns) : "-",
                    percent_text(share_of(row.ns, all))});
  return table;
}

ReportTable rank_table(const Analysis& analysis) {
  ReportTable table{
      .title = "Ranks",
      .note =
          "Burnt: how much of the time that it waited a rank has at least kept its core busy with it; "
          "known where it has one thread.",
      .columns = {"rank", "host", "elapsed", "user", "system", "communication", "waiting", "burnt", "memory",
                  "transfer of a call"}};
  for (const RankFacts& rank : analysis.ranks) {
    const auto known = [](double ns) { return ns > 0 ? time_text(ns) : "-"; };
    add_row(table,
            {std::to_string(rank.rank), rank.host.empty() ? "-" : rank.host, known(rank.elapsed_ns),
             known(rank.user_ns), known(rank.system_ns), known(rank.communication_ns), known(rank.waited_ns),
             rank.burnt_ns ? time_text(*rank.burnt_ns) : "-",
             rank.most_resident_bytes > 0 ? bytes_text(static_cast<double>(rank.most_resident_bytes)) : "-",
             known(rank.transfer_ns)});
  }
  return table;
}

ReportTable link_table(const Analysis& analysis) {
  ReportTable table{.title = "Between hosts",
                    .note = "What went over TCP. Busy: some of it was on the way and its reader had room.",
                    .columns = {"from rank", "to rank", "bytes", "busy", "while busy"}};
  for (const LinkFacts& link : analysis.links)
    add_row(table, {std::to_string(link.from), std::to_string(link.to), bytes_text(link.bytes),
                    time_text(link.busy_ns), rate_text(link.bytes_per_second())});
  return table;
}

void add_facts(const Analysis& analysis, ReportDocument& document) {
  const auto add = [&](const char* name, std::string value) {
    document.facts.emplace_back(name, std::move(value));
  };
  add("ranks",
      std::to_string(analysis.ranks.size()) + (analysis.hosts.empty() ? "" : " on " + analysis.hosts));
  if (!analysis.job.empty())
    add("job", analysis.job + (analysis.written_at.empty() ? "" : ", " + analysis.written_at));
  if (analysis.elapsed_ns > 0)
    add("elapsed", fmt::format("{}, {} in communication", time_text(analysis.elapsed_ns),
                               percent_text(share_of(analysis.communication_ns, analysis.elapsed_ns))));
  if (analysis.ended_by != 0) add("ended", "by " + base::signal_name(analysis.ended_by));
  if (analysis.steps) {
    const StepFacts& steps = *analysis.steps;
    const double exposed = time_of(steps.mean, Phase::others) + time_of(steps.mean, Phase::transfer);
    add("step", fmt::format("median {}, {} exposed communication", time_text(steps.median_ns),
                            percent_text(share_of(exposed, steps.mean_ns))));
    add("gradients", fmt::format("{} a step; of {:.1f} buckets {:.1f} are complete at the last gradient",
                                 bytes_text(steps.gradient_bytes), steps.buckets, steps.buckets_complete));
    if (steps.under_way_ns > 0)
      add("overlap", fmt::format("{} of the {} that calls of a step are under way",
                                 percent_text(share_of(steps.covered_ns, steps.under_way_ns)),
                                 time_text(steps.under_way_ns)));
  }
  if (analysis.calls > 0) {
    const auto calls = static_cast<double>(analysis.calls);
    const auto small = static_cast<double>(analysis.small_calls + analysis.control_messages);
    add("control messages",
        fmt::format(
            "{} of {} calls are control messages or carry up to {}: {} of the communication",
            percent_text(small / calls), analysis.calls,
            bytes_text(static_cast<double>(Thresholds::small_call_bytes)),
            percent_text(share_of(analysis.small_calls_ns + analysis.control_ns,
                                  analysis.communication_ns * static_cast<double>(analysis.ranks.size())))));
  }
  const auto memory = std::ranges::max_element(analysis.ranks, {}, &RankFacts::most_resident_bytes);
  if (memory != analysis.ranks.end() && memory->most_resident_bytes > 0)
    add("memory", fmt::format("at most {} (rank {})",
                              bytes_text(static_cast<double>(memory->most_resident_bytes)), memory->rank));
  if (analysis.clock_error_ns > 0)
    add("clocks", "of hosts agree within " + time_text(static_cast<double>(analysis.clock_error_ns)));
}

}  // namespace

ReportDocument document_of(const Analysis& analysis, const Verdict& verdict) {
  ReportDocument document{.title = "Report of " + (analysis.name.empty() ? "a run" : analysis.name),
                          .sentence = verdict.sentence,
                          .notes = analysis.notes};
  for (const Finding& finding : verdict.findings) {
    const std::string gain =
        finding.gain_ns <= 0
            ? ""
            : fmt::format("up to {} {} ({})", time_text(finding.gain_ns),
                          analysis.steps ? "a step" : "of the run", percent_text(finding.share));
    const bool is_said = verdict.sentence.find(finding.text) != std::string::npos;
    document.remedies.push_back({gain, is_said ? "" : finding.text, finding.remedy});
  }
  add_facts(analysis, document);
  if (analysis.failure) document.failure = analysis.failure->lines;
  if (analysis.steps) {
    document.charts = {step_chart(*analysis.steps), rank_chart(analysis)};
    document.tables.push_back(step_table(*analysis.steps));
    if (!analysis.steps->calls.empty()) document.tables.push_back(overlap_table(*analysis.steps));
  }
  if (!analysis.meetings.empty()) document.tables.push_back(lateness_table(analysis));
  if (!analysis.sizes.empty()) {
    if (ReportChart chart = size_chart(analysis); !chart.labels.empty())
      document.charts.push_back(std::move(chart));
    document.tables.push_back(size_table(analysis));
  }
  if (!analysis.mpi.empty()) document.tables.push_back(mpi_table(analysis));
  if (!analysis.changes.empty()) document.tables.push_back(changes_table(analysis));
  document.tables.push_back(rank_table(analysis));
  if (!analysis.links.empty()) document.tables.push_back(link_table(analysis));
  return document;
}

namespace {

/// "-18 %".
std::string change_text(double before, double after) {
  if (before <= 0) return after <= 0 ? "" : "new";
  return fmt::format("{}{}", after > before ? "+" : "", percent_text((after - before) / before));
}

struct Change {
  std::string name;
  double before, after;
};

/// What of the steps changed most, in the direction of the whole.
std::string what_changed_most(const StepFacts& before, const StepFacts& after) {
  const double whole = after.mean_ns - before.mean_ns;
  std::size_t most = 0;
  double change = 0;
  for (std::size_t p = 0; p < phase_count; ++p) {
    const double one = after.mean[p] - before.mean[p];
    if (one * whole > 0 && std::abs(one) > std::abs(change)) {
      change = one;
      most = p;
    }
  }
  return fmt::format("mostly {}: {} then, {} now", phase_names[most], time_text(before.mean[most]),
                     time_text(after.mean[most]));
}

std::string difference_sentence(const Analysis& before, const Analysis& after) {
  const bool have_steps = before.steps && after.steps;
  const double old_time = have_steps ? before.steps->median_ns : before.elapsed_ns;
  const double new_time = have_steps ? after.steps->median_ns : after.elapsed_ns;
  const std::string what = have_steps ? "A step" : "The run";
  if (old_time <= 0 || new_time <= 0) return "How long these runs took is not known.";
  const double share = (new_time - old_time) / old_time;
  const std::string times = fmt::format("{} then, {} now", time_text(old_time), time_text(new_time));
  const double error = have_steps ? distance(before.steps->median_error_ns, after.steps->median_error_ns) : 0;
  if (std::abs(share) < Thresholds::differs ||
      std::abs(new_time - old_time) < Thresholds::standard_errors * error)
    return fmt::format("{} takes as long as before, as far as noise lets tell: {}.", what, times);
  return fmt::format("{} takes {} {}: {}{}.", what, percent_text(std::abs(share)),
                     share < 0 ? "less" : "more", times,
                     have_steps ? "; " + what_changed_most(*before.steps, *after.steps) : "");
}

std::vector<Change> changes_of(const Analysis& before, const Analysis& after) {
  std::vector<Change> changes;
  if (before.steps && after.steps) {
    changes.push_back({"step, median", before.steps->median_ns, after.steps->median_ns});
    for (std::size_t p = 0; p < phase_count; ++p)
      changes.push_back({"step: " + name_of_phase(p), before.steps->mean[p], after.steps->mean[p]});
  }
  changes.push_back({"elapsed", before.elapsed_ns, after.elapsed_ns});
  changes.push_back({"in communication", before.communication_ns, after.communication_ns});
  changes.push_back({"waiting for others", before.waited_ns, after.waited_ns});
  for (const Meetings& meetings : after.meetings) {
    const auto found = std::ranges::find(before.meetings, meetings.kind, &Meetings::kind);
    if (found != before.meetings.end())
      changes.push_back({"wait for the last: " + meetings.kind, found->wait_ns, meetings.wait_ns});
  }
  return changes;
}

ReportTable bandwidth_changes(const Analysis& before, const Analysis& after) {
  ReportTable table{.title = "Bus bandwidth", .columns = {"operation", "size", "before", "after", "change"}};
  for (const SizeRow& row : after.sizes) {
    const auto old = std::ranges::find_if(before.sizes, [&](const SizeRow& one) {
      return one.operation == row.operation && one.has_counts == row.has_counts &&
             one.size_bin == row.size_bin;
    });
    if (old == before.sizes.end() || row.bus_bytes_per_second <= 0 || old->bus_bytes_per_second <= 0)
      continue;
    add_row(table, {name_of_call(row.operation, row.has_counts), size_text(row.size_bin),
                    rate_text(old->bus_bytes_per_second), rate_text(row.bus_bytes_per_second),
                    change_text(old->bus_bytes_per_second, row.bus_bytes_per_second)});
  }
  return table;
}

}  // namespace

ReportDocument difference_of(const Analysis& before, const Analysis& after) {
  ReportDocument document{.title = "From " + before.name + " to " + after.name,
                          .sentence = difference_sentence(before, after)};
  document.facts = {{"before", before.name + ": " + judge(before).sentence},
                    {"after", after.name + ": " + judge(after).sentence},
                    {"ranks", fmt::format("{} before, {} after", before.ranks.size(), after.ranks.size())}};
  if (before.ranks.size() != after.ranks.size())
    document.notes.emplace_back(
        "the runs have different numbers of ranks: times of a step are of different work");
  for (const Analysis* run : {&before, &after}) {
    for (const std::string& note : run->notes) document.notes.push_back(run->name + ": " + note);
  }
  ReportTable table{.title = "What changed",
                    .note = "Means of the ranks.",
                    .columns = {"time", "before", "after", "change"}};
  for (const Change& change : changes_of(before, after)) {
    if (change.before <= 0 && change.after <= 0) continue;
    add_row(table, {change.name, time_text(change.before), time_text(change.after),
                    change_text(change.before, change.after)});
  }
  if (before.steps && after.steps) {
    ReportChart chart{.kind = ReportChart::Kind::stacked,
                      .title = "A step, before and after",
                      .unit = "ms",
                      .labels = {"before", "after"}};
    for (std::size_t p = 0; p < phase_count; ++p)
      chart.series.push_back({name_of_phase(p), {ms(before.steps->mean[p]), ms(after.steps->mean[p])}});
    document.charts.push_back(std::move(chart));
  }
  document.tables.push_back(std::move(table));
  if (ReportTable rates = bandwidth_changes(before, after); !rates.rows.empty())
    document.tables.push_back(std::move(rates));
  return document;
}

}  // namespace lockstep::view
