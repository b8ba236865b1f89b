#include "lockstep/view/profile/flat_profile.h"
#include "lockstep/base/words.h"

#include <fmt/core.h>

#include <algorithm>
#include <iterator>
#include <set>

namespace lockstep::view {
namespace {

const std::string wide_rule(71, '-');
const std::string rule(65, '-');

// As mpitrace has them, which divides what the system counts in KiB by 1024.
double megabytes(std::uint64_t bytes) { return static_cast<double>(bytes) / (1 << 20); }
double average_bytes(const CallSums& sums) {
  return sums.calls == 0 ? 0.0 : static_cast<double>(sums.bytes) / static_cast<double>(sums.calls);
}

std::string role_of(int rank, const RunExtremes& run) {
  std::string roles;
  const auto add = [&](int which, const char* role) {
    if (which == rank) roles += (roles.empty() ? "" : " and ") + std::string(role);
  };
  add(run.most_communication, "maximum");
  add(run.median_communication, "median");
  add(run.least_communication, "minimum");
  return roles;
}

void add_sizes(std::string& text, const RoutineSums& routine) {
  text += fmt::format("{:<23}{:>9}    {:>10}      time(sec)\n", routine.name, "#calls", "avg. bytes");
  for (const CallSums& sums : routine.by_size) {
    if (sums.calls == 0) continue;
    text += fmt::format("{:>32}  {:>12.1f}   {:>12.3f}\n", sums.calls, average_bytes(sums),
                        base::in_seconds(sums.ns));
  }
  text += "\n";
}

}  // namespace

CallSums& CallSums::operator+=(const CallSums& more) {
  calls += more.calls;
  bytes += more.bytes;
  ns += more.ns;
  return *this;
}

CallSums RoutineSums::all() const {
  CallSums sums;
  for (const CallSums& of_size : by_size) sums += of_size;
  return sums;
}

RunExtremes extremes_of(const std::vector<RankCosts>& ranks) {
  std::vector<RankCosts> sorted = ranks;
  std::ranges::sort(sorted, {}, &RankCosts::rank);
  const auto memory = std::ranges::max_element(
      sorted, {}, [](const RankCosts& rank) { return rank.costs.most_resident_bytes; });
  const auto elapsed =
      std::ranges::max_element(sorted, {}, [](const RankCosts& rank) { return rank.costs.elapsed_ns; });
  RunExtremes run{
      .ranks = static_cast<int>(sorted.size()),
      .most_communication = std::ranges::max_element(sorted, {}, &RankCosts::communication_ns)->rank,
      .largest_memory = memory->rank,
      .largest_memory_bytes = memory->costs.most_resident_bytes,
      .longest_elapsed = elapsed->rank,
      .longest_elapsed_ns = elapsed->costs.elapsed_ns};
  std::ranges::stable_sort(sorted, {}, &RankCosts::communication_ns);
  run.least_communication = sorted.front().rank;
  run.median_communication = sorted[(sorted.size() - 1) / 2].rank;
  return run;
}

std::vector<int> ranks_to_write(const RunExtremes& run, bool all) {
  std::set<int> ranks = {0, run.least_communication, run.median_communication, run.most_communication};
  for (int rank = 0; all && rank < run.ranks; ++rank) ranks.insert(rank);
  return {ranks.begin(), ranks.end()};
}

std::string flat_profile(const RankSums& rank, const RunExtremes& run, const ProfileWords& words) {
  std::string text =
      fmt::format("Data for {} {} of {}:\n{}\n{}\n{:<35}#calls     avg. bytes      time(sec)\n{}\n",
                  words.rank, rank.rank, run.ranks, words.period, wide_rule, words.routine, wide_rule);
  for (const RoutineSums& routine : rank.routines) {
    const CallSums sums = routine.all();
    text += fmt::format("{:<28} {:>12}    {:>11.1f}   {:>12.3f}\n", routine.name, sums.calls,
                        routine.has_sizes ? average_bytes(sums) : 0.0, base::in_seconds(sums.ns));
  }
  text += rule + "\n";
  if (const std::string role = role_of(rank.rank, run); !role.empty())
    text +=
        fmt::format("{} {} of {} had the {} communication time.\n", words.task, rank.rank, run.ranks, role);
  text += fmt::format(
      "total communication time = {:.3f} seconds.\ntotal elapsed time       = {:.3f} seconds.\n"
      "user cpu time            = {:.3f} seconds.\nsystem time              = {:.3f} seconds.\n"
      "max resident set size    = {:.3f} MBytes.\n\n",
      base::in_seconds(rank.communication_ns), base::in_seconds(rank.costs.elapsed_ns),
      base::in_seconds(rank.costs.user_ns), base::in_seconds(rank.costs.system_ns),
      megabytes(rank.costs.most_resident_bytes));
  text += fmt::format(
      "Rank {} reported the largest memory utilization : {:.2f} MBytes\n"
      "Rank {} reported the largest elapsed time : {:.2f} sec\n",
      run.largest_memory, megabytes(run.largest_memory_bytes), run.longest_elapsed,
      base::in_seconds(run.longest_elapsed_ns));
  text += rule + "\nMessage size distributions:\n\n";
  for (const RoutineSums& routine : rank.routines) {
    if (routine.has_sizes) add_sizes(text, routine);
  }
  return text;
}

}  // namespace lockstep::view
