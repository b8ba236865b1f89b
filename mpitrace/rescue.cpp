#include "mpitrace/rescue.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <filesystem>
#include <map>
#include <span>
#include <utility>

#include "lockstep/base/deadline.h"
#include "lockstep/base/file.h"
#include "lockstep/base/mapping.h"
#include "lockstep/base/unique_fd.h"
#include "lockstep/base/words.h"
#include "mpitrace/event_file.h"
#include "mpitrace/left_files.h"
#include "mpitrace/merge.h"
#include "mpitrace/profile.h"

namespace lockstep::mpitrace {
namespace {

/// For ranks that are still dying when their launcher has ended: of a run, and of any, which may as well go on.
constexpr std::chrono::seconds patience{5}, patience_with_any{1};

struct Found {
  std::string path;
  UniqueFd lock;
  RankProfile profile;
};
/// Of one job and one start of it.
using Jobs = std::map<std::pair<std::string, std::string>, std::vector<Found>>;

void look_at(const std::string& path, const std::string& run, Deadline deadline, Jobs& jobs) {
  UniqueFd fd(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (!fd || !lock_left_file(fd.get(), run, offsetof(Header, run), deadline)) return;
  const Mapping table = Mapping::of_file(fd.get(), page_bytes, Mapping::Access::read, path);
  RankProfile profile = read_profile(table.bytes(), path);
  if (!run.empty() && profile.run != run) return;
  std::vector<Found>& job = jobs[{profile.job, profile.run}];
  job.push_back({path, std::move(fd), std::move(profile)});
}

/// `look_at(path)` at each file; what it throws is told.
template <class Look>
void look_at_each(const std::string& folder, std::string_view beginning, Rescued& rescued, Look look_at) {
  for (const std::string& path : files_with(folder, beginning)) {
    try {
      look_at(path);
    } catch (const std::exception& problem) {
      rescued.lines.push_back(std::string(problem.what()) + "; it stays");
      rescued.has_failed = true;
    }
  }
}

void write_job(const std::string& folder, const std::string& job, const std::vector<Found>& tables, bool all,
               Rescued& rescued) {
  std::vector<view::RankCosts> costs;
  for (const Found& found : tables)
    costs.push_back({found.profile.sums.rank, found.profile.sums.communication_ns, found.profile.sums.costs});
  view::RunExtremes run = view::extremes_of(costs);
  run.ranks = tables.front().profile.ranks;
  const std::vector<int> wanted = view::ranks_to_write(run, all);
  std::vector<int> written;
  for (const Found& found : tables) {
    const int rank = found.profile.sums.rank;
    if (std::ranges::find(wanted, rank) != wanted.end()) {
      write_profile(folder + "/" + profile_name(job, rank), profile_text(found.profile, run, RankEnd::early));
      written.push_back(rank);
    }
  }
  for (const Found& found : tables) ::unlink(found.path.c_str());
  rescued.lines.push_back(
      fmt::format("{} of {} ended before MPI_Finalize; profiles of {} up to their last calls in {}/{}*",
                  base::counted(static_cast<std::int64_t>(tables.size()), "rank"), run.ranks,
                  base::name_rank_ranges(written), folder,
                  profile_name(job, 0).substr(0, profile_name(job, 0).size() - 1)));
}

/// Files of events of one start of a job, and the file that was wanted of them.
struct LeftEvents {
  std::vector<std::string> paths;
  std::vector<UniqueFd> locks;
  std::string timeline;
};
using LeftJobs = std::map<std::pair<std::string, std::uint64_t>, LeftEvents>;

void look_at_events(const std::string& path, const std::string& run, Deadline deadline, LeftJobs& jobs) {
  UniqueFd fd(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (!fd || !lock_left_file(fd.get(), run, offsetof(EventsHeader, run), deadline)) return;
  const std::string begins = InputFile(path, "timeline's file").text(event_names_at);
  const RankAbout about = read_about(std::as_bytes(std::span(begins)), path);
  if (!run.empty() && about.run != run) return;
  LeftEvents& job = jobs[{about.job, about.start}];
  job.paths.push_back(path);
  job.locks.push_back(std::move(fd));
  job.timeline = about.timeline;
}

/// Of several jobs each has a file of its own.
std::string name_of_one(const std::filesystem::path& file, const std::string& job, bool is_only_one) {
  if (is_only_one) return file;
  return file.parent_path() / (file.stem().string() + "." + job + file.extension().string());
}

/// `write(names, left)` for each job; of what it throws is told, and `stays`.
template <class Jobs, class Write>
void write_each(const Jobs& jobs, const std::string& stays, Rescued& rescued, Write write) {
  for (const auto& job : jobs) {
    try {
      write(job.first, job.second);
    } catch (const std::exception& problem) {
      rescued.lines.push_back(std::string(problem.what()) + "; " + stays);
      rescued.has_failed = true;
    }
  }
}

}  // namespace

Rescued rescue(const std::string& folder, const std::string& run, bool all) {
  Rescued rescued;
  Jobs jobs;
  const Deadline deadline = Deadline::after(run.empty() ? patience_with_any : patience);
  look_at_each(folder, table_beginning, rescued,
               [&](const std::string& path) { look_at(path, run, deadline, jobs); });
  write_each(jobs, "the tables stay", rescued, [&](const auto& names, const auto& tables) {
    write_job(folder, names.first, tables, all, rescued);
  });
  return rescued;
}

Rescued rescue_timelines(const std::string& folder, const std::string& run, const std::string& wanted) {
  Rescued rescued;
  LeftJobs jobs;
  const Deadline deadline = Deadline::after(run.empty() ? patience_with_any : patience);
  look_at_each(folder, events_beginning, rescued,
               [&](const std::string& path) { look_at_events(path, run, deadline, jobs); });
  write_each(jobs, "the ranks' files stay in " + folder, rescued, [&](const auto& names, const auto& left) {
    const Merged merged = merge(left.paths);
    const std::string path =
        wanted.empty() ? left.timeline : name_of_one(wanted, names.first, jobs.size() == 1);
    view::write_timeline_file(path, merged.timeline);
    rescued.lines.push_back(view::timeline_line(path, merged.timeline));
    for (const std::string& file : left.paths) ::unlink(file.c_str());
  });
  return rescued;
}

}  // namespace lockstep::mpitrace
