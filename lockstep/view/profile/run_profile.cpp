#include "lockstep/view/profile/run_profile.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <span>
#include <tuple>
#include <vector>

#include "lockstep/base/file.h"
#include "lockstep/base/words.h"
#include "lockstep/trace/group_names.h"

namespace lockstep::view {
namespace {

namespace fs = std::filesystem;

using trace::CallTotals;
using trace::FlightRank;
using trace::FlightRecord;

/// What rows are told apart by.
enum class RowKind { program, training, named, control };

struct RowKey {
  RowKind kind = RowKind::program;
  Operation operation = Operation::barrier;
  bool has_counts = false;
  auto operator<=>(const RowKey&) const = default;  // NOLINT(modernize-use-nullptr)

  std::string name() const {
    std::string operation_name = name_of_call(operation, has_counts);
    if (kind == RowKind::program) return operation_name;
    if (kind == RowKind::training) return "training step";
    return (kind == RowKind::named ? "named " : "control ") + operation_name;
  }
};

struct Row {
  CallTotals all = {};
  std::array<CallTotals, base::size_bin_count> by_size = {};
};

using OperationRows = std::map<RowKey, Row>;

/// Their exposed communication: the rest is not in anybody's way.
CallTotals of_steps(const trace::StepTotals& steps) {
  const std::uint64_t exposed = steps.exposed_work_ns + steps.exposed_wait_ns;
  return {.calls = steps.steps,
          .bytes = steps.gradient_bytes,
          .ns = exposed,
          .waited_ns = steps.exposed_wait_ns,
          .blocked_ns = exposed};
}

std::map<std::uint32_t, bool> groups_of_named_operations(const FlightRecord& record) {
  std::map<std::uint32_t, bool> found;
  for (const trace::FlightGroup& group : record.groups)
    found[group.number] = trace::is_for_named_operations(group.name);
  return found;
}

void add_rows(OperationRows& rows, const std::map<std::uint32_t, bool>& named_groups,
              const FlightRank& rank) {
  for (const trace::TotalsRow& row : rank.totals) {
    const auto group = named_groups.find(row.of.group);
    const bool is_named = group != named_groups.end() && group->second;
    const RowKind kind = !is_named                      ? RowKind::program
                         : is_message(row.of.operation) ? RowKind::control
                                                        : RowKind::named;
    Row& sums = rows[{kind, row.of.operation, row.of.has_counts}];
    sums.all += row.totals;
    sums.by_size[static_cast<std::size_t>(row.of.size_bin)] += row.totals;
  }
  if (rank.steps.steps == 0) return;
  const CallTotals step = of_steps(rank.steps);
  Row& sums = rows[{.kind = RowKind::training}];
  sums.all += step;
  sums.by_size[static_cast<std::size_t>(base::size_bin(step.bytes / step.calls))] += step;
}

OperationRows rows_of(const FlightRecord& record, const FlightRank& rank) {
  OperationRows rows;
  add_rows(rows, groups_of_named_operations(record), rank);
  return rows;
}

std::uint64_t transfer_ns(const CallTotals& sums) { return sums.ns - std::min(sums.ns, sums.waited_ns); }

double percent(double part, double whole) { return whole > 0 ? 100 * part / whole : 0.0; }

ProcessCosts process_costs_of(const FlightRank& rank) {
  const trace::FlightCosts& costs = rank.costs;
  return {.elapsed_ns = costs.left_at_ns > costs.joined_at_ns ? costs.left_at_ns - costs.joined_at_ns : 0,
          .user_ns = costs.process.user_ns,
          .system_ns = costs.process.system_ns,
          .most_resident_bytes = costs.process.most_resident_bytes};
}

std::uint64_t communication_ns(const FlightRank& rank) {
  return trace::all_calls(rank).blocked_ns + of_steps(rank.steps).blocked_ns;
}

std::vector<const FlightRank*> joined_ranks(const FlightRecord& record) {
  std::vector<const FlightRank*> ranks;
  for (const FlightRank& rank : record.ranks) {
    if (rank.joined) ranks.push_back(&rank);
  }
  return ranks;
}

RunExtremes extremes_of(const FlightRecord& record) {
  std::vector<RankCosts> all;
  for (const FlightRank* rank : joined_ranks(record)) all.push_back(view::costs_of(*rank));
  RunExtremes run = view::extremes_of(all);
  run.ranks = trace::world_size(record);
  return run;
}

std::string waiting_and_transfer(const OperationRows& rows) {
  std::string text = fmt::format(
      "Waiting for others and transfer, while calls were under way:\n\n{:<28} {:>12}    {:>12} {:>12}\n",
      "Operation", "#calls", "waiting(sec)", "transfer(sec)");
  for (const auto& [key, row] : rows) {
    text += fmt::format("{:<28} {:>12}    {:>12.3f} {:>12.3f}\n", key.name(), row.all.calls,
                        base::in_seconds(row.all.waited_ns), base::in_seconds(transfer_ns(row.all)));
  }
  return text;
}

std::string training_steps(const trace::StepTotals& steps) {
  if (steps.steps == 0) return "";
  const std::uint64_t exposed = steps.exposed_work_ns + steps.exposed_wait_ns;
  return fmt::format(
      "\nTraining steps = {}, {:.3f} seconds, of which {:.3f} ({:.1f} %) exposed communication:\n"
      "{:.3f} seconds of copying and reducing, {:.3f} of waiting for others; {:.1f} bytes of gradients a "
      "step.\n",
      steps.steps, base::in_seconds(steps.ns), base::in_seconds(exposed),
      percent(base::in_seconds(exposed), base::in_seconds(steps.ns)), base::in_seconds(steps.exposed_work_ns),
      base::in_seconds(steps.exposed_wait_ns),
      static_cast<double>(steps.gradient_bytes) / static_cast<double>(steps.steps));
}

/// "5 to 8 B", "1 to 2 KiB".
std::string size_class(int bin) {
  static constexpr const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  if (bin == 0) return "0 B";
  if (bin == 1) return "1 to 4 B";
  const auto bits = static_cast<unsigned>(bin + 1);
  const unsigned unit = bits / 10;
  if (unit == 0) return fmt::format("{} to {} B", (1U << (bits - 1)) + 1, 1U << bits);
  const unsigned most = 1U << (bits % 10);
  return most == 1 ? fmt::format("512 {} to 1 {}", units[unit - 1], units[unit])
                   : fmt::format("{} to {} {}", most / 2, most, units[unit]);
}

std::string size_lines(const Row& row, double ranks) {
  std::string text;
  for (int bin = 0; bin < base::size_bin_count; ++bin) {
    const CallTotals& sums = row.by_size[static_cast<std::size_t>(bin)];
    if (sums.calls == 0) continue;
    text += fmt::format("    {:<24} {:>12.0f}    {:>11.1f}   {:>12.3f}\n", size_class(bin),
                        static_cast<double>(sums.calls) / ranks,
                        static_cast<double>(sums.bytes) / static_cast<double>(sums.calls),
                        base::in_seconds(sums.blocked_ns) / ranks);
  }
  return text;
}

std::string table(const OperationRows& rows, double ranks) {
  std::string text = fmt::format("  {:<26} {:>12}    {:>11}   {:>12} {:>12} {:>12}\n", "mean of the ranks",
                                 "calls", "avg. bytes", "time(sec)", "waiting", "transfer");
  for (const auto& [key, row] : rows) {
    const CallTotals& sums = row.all;
    text += fmt::format("  {:<26} {:>12.0f}    {:>11.1f}   {:>12.3f} {:>12.3f} {:>12.3f}\n", key.name(),
                        static_cast<double>(sums.calls) / ranks,
                        static_cast<double>(sums.bytes) / static_cast<double>(sums.calls),
                        base::in_seconds(sums.blocked_ns) / ranks, base::in_seconds(sums.waited_ns) / ranks,
                        base::in_seconds(transfer_ns(sums)) / ranks);
    const auto is_used = [](const CallTotals& of_size) { return of_size.calls != 0; };
    if (!key.has_counts && std::ranges::count_if(row.by_size, is_used) > 1) text += size_lines(row, ranks);
  }
  return text;
}

/// What ranks spent on agreeing about named operations, where there were any.
std::string control_line(const OperationRows& rows, double ranks, double elapsed) {
  CallTotals control;
  bool has_named = false;
  for (const auto& [key, row] : rows) {
    if (key.kind == RowKind::control) control += row.all;
    has_named = has_named || key.kind == RowKind::named || key.kind == RowKind::control;
  }
  if (!has_named) return "";
  const double time = base::in_seconds(control.blocked_ns) / ranks;
  return fmt::format(
      "  control messages: {:.0f} of {:.0f} bytes, {:.3f} s, {:.2f} % of the elapsed time\n",
      static_cast<double>(control.calls) / ranks,
      control.calls == 0 ? 0.0 : static_cast<double>(control.bytes) / static_cast<double>(control.calls),
      time, percent(time, elapsed));
}

/// "4 ranks"; "2 of 4 ranks (nothing is known of ranks 2-3)", where their host was lost.
std::string how_many(const FlightRecord& record) {
  std::vector<int> missing;
  for (int rank = 0; rank < trace::world_size(record); ++rank) {
    const auto found = std::ranges::find(record.ranks, rank, &FlightRank::rank);
    if (found == record.ranks.end() || !found->joined) missing.push_back(rank);
  }
  const int all = trace::world_size(record);
  if (missing.empty()) return base::counted(all, "rank");
  return fmt::format("{} of {} (nothing is known of {})", all - static_cast<int>(missing.size()),
                     base::counted(all, "rank"), base::name_rank_ranges(missing));
}

std::string training_line(const std::vector<const FlightRank*>& ranks) {
  trace::StepTotals sums;
  for (const FlightRank* rank : ranks) {
    sums.steps += rank->steps.steps;
    sums.ns += rank->steps.ns;
    sums.exposed_work_ns += rank->steps.exposed_work_ns;
    sums.exposed_wait_ns += rank->steps.exposed_wait_ns;
  }
  if (sums.steps == 0) return "";
  const double whole = base::in_seconds(sums.ns), work = base::in_seconds(sums.exposed_work_ns),
               wait = base::in_seconds(sums.exposed_wait_ns);
  return fmt::format(
      "  training: {:.0f} steps of {}, {:.1f} % of it exposed communication: {:.1f} % copying and reducing, "
      "{:.1f} % "
      "waiting for others\n",
      static_cast<double>(sums.steps) / static_cast<double>(ranks.size()),
      base::duration(sums.ns / sums.steps), percent(work + wait, whole), percent(work, whole),
      percent(wait, whole));
}

/// What large calls of the program reach of what the machine allows, by operation and number of ranks.
std::string bandwidth_lines(const FlightRecord& record, const std::vector<const FlightRank*>& ranks,
                            const MachineLimits& limits) {
  constexpr std::uint64_t large = 256 << 10;  // below, what counts is how soon a call is over
  struct Sums {
    double bytes = 0, seconds = 0;
  };
  std::map<std::pair<Operation, int>, Sums> sums;
  for (const FlightRank* rank : ranks) {
    for (const trace::TotalsRow& row : rank->totals) {
      const auto group = std::ranges::find(record.groups, row.of.group, &trace::FlightGroup::number);
      if (group == record.groups.end() || row.of.has_counts || row.totals.calls == 0 ||
          row.totals.bytes / row.totals.calls < large)
        continue;
      const int members = static_cast<int>(group->members.size());
      Sums& of_group = sums[{row.of.operation, members}];
      of_group.bytes += bus_bytes(row.of.operation, false, members, static_cast<double>(row.totals.bytes));
      of_group.seconds += base::in_seconds(transfer_ns(row.totals));
    }
  }
  std::string text;
  for (const auto& [key, of_group] : sums) {
    const double limit = limits.bus_bandwidth(key.first, key.second);
    if (limit == 0 || of_group.seconds == 0) continue;
    const double rate = of_group.bytes / of_group.seconds;
    text += fmt::format("  {} of {} KiB and more, {} ranks: bus bandwidth {:.2f} GB/s, {:.0f} % of {:.2f}\n",
                        to_string(key.first), large >> 10U, key.second, rate * 1e-9, percent(rate, limit),
                        limit * 1e-9);
  }
  return text;
}

std::string begin_of_names(const std::string& folder, std::string job) {
  std::ranges::replace(job, '/', '_');
  return (fs::path(folder) / (profile_prefix + job)).string();
}

}  // namespace

std::string record_file_name(const std::string& job) { return begin_of_names("", job) + ".json"; }

RankSums sums_of(const FlightRecord& record, const FlightRank& rank) {
  RankSums sums{
      .rank = rank.rank, .communication_ns = communication_ns(rank), .costs = process_costs_of(rank)};
  for (const auto& [key, row] : rows_of(record, rank)) {
    RoutineSums routine{.name = key.name(),
                        .has_sizes = !key.has_counts &&
                                     (key.kind == RowKind::training || key.operation != Operation::barrier)};
    for (std::size_t bin = 0; bin < routine.by_size.size(); ++bin) {
      const CallTotals& of_size = row.by_size[bin];
      routine.by_size[bin] = {.calls = of_size.calls, .bytes = of_size.bytes, .ns = of_size.blocked_ns};
    }
    sums.routines.push_back(std::move(routine));
  }
  return sums;
}

std::string profile_text(const FlightRecord& record, const FlightRank& rank, const RunExtremes& run) {
  const ProfileWords words{.rank = "rank",
                           .period = "Times and statistics from lockstep::init() to the end of the world.",
                           .routine = "Operation",
                           .task = "Rank"};
  std::string text = flat_profile(sums_of(record, rank), run, words);
  text += waiting_and_transfer(rows_of(record, rank)) + training_steps(rank.steps);
  if (const std::uint64_t calls = rank.totals_left_out.calls; calls > 0)
    text += fmt::format("\nCalls for which there was no row = {}, {:.3f} seconds.\n", calls,
                        base::in_seconds(rank.totals_left_out.blocked_ns));
  return text;
}

RankCosts costs_of(const FlightRank& rank) {
  return {.rank = rank.rank, .communication_ns = communication_ns(rank), .costs = process_costs_of(rank)};
}

void write_profile_of(const std::string& folder, const FlightRecord& record, const FlightRank& rank,
                      const RunExtremes& run) {
  make_folders(folder, "profile");
  write_file(begin_of_names(folder, record.job) + "." + std::to_string(rank.rank), "profile",
             profile_text(record, rank, run));
}

std::string profile_summary(const FlightRecord& record, const std::optional<MachineLimits>& limits) {
  const auto ranks = joined_ranks(record);
  if (ranks.empty()) return "";
  const auto named_groups = groups_of_named_operations(record);
  const auto count = static_cast<double>(ranks.size());
  OperationRows rows;
  CallTotals all;
  double elapsed = 0, user = 0, system = 0;
  for (const FlightRank* rank : ranks) {
    add_rows(rows, named_groups, *rank);
    const ProcessCosts costs = process_costs_of(*rank);
    elapsed += base::in_seconds(costs.elapsed_ns) / count;
    user += base::in_seconds(costs.user_ns) / count;
    system += base::in_seconds(costs.system_ns) / count;
  }
  for (const auto& [key, row] : rows) {
    CallTotals sums = row.all;
    if (key.kind == RowKind::training) sums.ns = sums.waited_ns = 0;  // is in the calls of the step
    all += sums;
  }
  const RunExtremes run = extremes_of(record);
  const auto of_rank = [&](int wanted) {
    const auto found = std::ranges::find(ranks, wanted, &FlightRank::rank);
    return base::in_seconds(communication_ns(**found));
  };
  const double time = base::in_seconds(all.blocked_ns) / count;
  return table(rows, count) +
         fmt::format(
             "  communication: {:.3f} s of {:.3f} s ({:.1f} %); under way {:.3f} s waiting for others, "
             "{:.3f} s transfer; "
             "least on rank {} ({:.3f} s), most on rank {} ({:.3f} s)\n",
             time, elapsed, percent(time, elapsed), base::in_seconds(all.waited_ns) / count,
             base::in_seconds(transfer_ns(all)) / count, run.least_communication,
             of_rank(run.least_communication), run.most_communication, of_rank(run.most_communication)) +
         training_line(ranks) + control_line(rows, count, elapsed) +
         (limits ? bandwidth_lines(record, ranks, *limits) : "") +
         fmt::format(
             "  user {:.3f} s, system {:.3f} s; largest resident set {:.1f} MiB (rank {}), longest elapsed "
             "{:.3f} s (rank {})\n",
             user, system, static_cast<double>(run.largest_memory_bytes) / (1 << 20), run.largest_memory,
             base::in_seconds(run.longest_elapsed_ns), run.longest_elapsed);
}

std::string why_nobody_joined(const FlightRecord& record) {
  return record.ranks.size() == 1 ? "one rank alone communicates with nobody, and has no record"
                                  : "no rank has called lockstep::init()";
}

std::string leave_profile(const ProfileOptions& options, const FlightRecord& record,
                          const std::string& speaker) {
  if (joined_ranks(record).empty())
    return speaker + ": there is no profile: " + why_nobody_joined(record) + "\n";
  const std::string begin = begin_of_names(options.folder, record.job);
  const std::string summary = profile_summary(record, options.limits);
  try {
    make_folders(options.folder, "profile");
    const RunExtremes run = extremes_of(record);
    const auto wanted = ranks_to_write(run, options.all_ranks);
    for (const FlightRank* rank : joined_ranks(record)) {
      if (std::ranges::binary_search(wanted, rank->rank))
        write_profile_of(options.folder, record, *rank, run);
    }
    write_file(fs::path(options.folder) / record_file_name(record.job), "profile", record.to_text());
    return fmt::format("{}: profile of {}, in {}.*\n{}", speaker, how_many(record), begin, summary);
  } catch (const std::exception& error) {
    return fmt::format("{}: the profile could not be written: {}\n{}", speaker, error.what(), summary);
  }
}

}  // namespace lockstep::view
