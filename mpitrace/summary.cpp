#include "mpitrace/summary.h"

#include <fmt/core.h>

#include <algorithm>
#include <exception>
#include <vector>

#include "lockstep/base/words.h"
#include "lockstep/trace/clock.h"
#include "mpitrace/profile.h"
#include "mpitrace/say.h"
#include "mpitrace/tell_all.h"

namespace lockstep::mpitrace {
namespace {

/// What each rank tells all others.
struct Told {
  std::uint64_t communication_ns, elapsed_ns, user_ns, system_ns, most_resident_bytes;
  std::uint64_t longest_ns;  ///< in the routine that took most
  std::int32_t longest;      ///< its place in `routines`; -1: none was called
  std::int32_t has_profile;
};

Told told_of(const RankProfile& profile) {
  const view::ProcessCosts& costs = profile.sums.costs;
  Told told{.communication_ns = profile.sums.communication_ns,
            .elapsed_ns = costs.elapsed_ns,
            .user_ns = costs.user_ns,
            .system_ns = costs.system_ns,
            .most_resident_bytes = costs.most_resident_bytes,
            .longest_ns = 0,
            .longest = -1,
            .has_profile = 1};
  for (const view::RoutineSums& routine : profile.sums.routines) {
    const std::uint64_t ns = routine.all().ns;
    if (ns < told.longest_ns) continue;
    told.longest_ns = ns;
    told.longest = static_cast<std::int32_t>(std::ranges::find(routines, routine.name, &Routine::name) -
                                             std::begin(routines));
  }
  return told;
}

view::RunExtremes extremes_of(const std::vector<Told>& all) {
  std::vector<view::RankCosts> ranks;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    const Told& told = all[rank];
    ranks.push_back({.rank = static_cast<int>(rank),
                     .communication_ns = told.communication_ns,
                     .costs = {told.elapsed_ns, told.user_ns, told.system_ns, told.most_resident_bytes}});
  }
  return view::extremes_of(ranks);
}

std::string share(const Told& told) {
  const double elapsed = std::max(base::in_seconds(told.elapsed_ns), 1e-9);
  return fmt::format("{:.3f} s ({:.0f} %)", base::in_seconds(told.communication_ns),
                     100 * base::in_seconds(told.communication_ns) / elapsed);
}

void say_summary(const RunReport& report, const view::RunExtremes& run, const std::vector<Told>& all,
                 const std::vector<int>& written) {
  const auto of_rank = [&](int rank) -> const Told& { return all[static_cast<std::size_t>(rank)]; };
  const Told& most = of_rank(run.most_communication);
  std::string in;
  if (most.longest >= 0)
    in =
        fmt::format(", {:.3f} s of it in {}", base::in_seconds(most.longest_ns), routines[most.longest].name);
  say(fmt::format("{}, {:.3f} s from MPI_Init to MPI_Finalize", base::counted(report.ranks, "rank"),
                  base::in_seconds(run.longest_elapsed_ns)));
  say(fmt::format("most communication: rank {}, {}{}; least: rank {}, {}", run.most_communication,
                  share(most), in, run.least_communication, share(of_rank(run.least_communication))));
  if (!written.empty())
    say(fmt::format(
        "profiles of {} in {}/{}", base::name_rank_ranges(written), report.folder,
        profile_name(report.job, written.front()).substr(0, profile_name(report.job, 0).size() - 1) +
            (written.size() == 1 ? std::to_string(written.front()) : "*")));
}

bool write(const RunReport& report, const RankProfile& profile, const view::RunExtremes& run) {
  try {
    write_profile(report.folder + "/" + profile_name(report.job, report.rank),
                  profile_text(profile, run, RankEnd::finalized));
    return true;
  } catch (const std::exception& error) {
    say(fmt::format("the profile of rank {} is not written: {}", report.rank, error.what()));
    return false;
  }
}

}  // namespace

void write_profiles(const RunReport& report, Table* table) {
  Told mine = {};
  RankProfile profile;
  if (table != nullptr) {
    profile = read_profile({table->data(), table->size()}, "the profile");
    profile.sums.costs.elapsed_ns = trace::now_ns() - table->header().begin_ns;
    mine = told_of(profile);
  }
  const std::vector<Told> all = tell_all(mine, report.ranks);
  const view::RunExtremes run = extremes_of(all);
  const std::vector<int> wanted = view::ranks_to_write(run, report.all);
  bool is_written = false;
  if (table != nullptr) {
    const bool is_wanted = std::ranges::find(wanted, report.rank) != wanted.end();
    is_written = is_wanted && write(report, profile, run);
    if (!is_wanted || is_written) table->remove_file();
  }
  const std::vector<char> done = tell_all<char>(is_written ? 1 : 0, report.ranks);
  if (report.rank != 0) return;
  std::vector<int> written;
  for (int rank = 0; rank < report.ranks; ++rank) {
    if (done[static_cast<std::size_t>(rank)] != 0) written.push_back(rank);
  }
  say_summary(report, run, all, written);
}

}  // namespace lockstep::mpitrace
