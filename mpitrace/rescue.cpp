#include "mpitrace/rescue.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <map>
#include <thread>
#include <utility>

#include "lockstep/base/deadline.h"
#include "lockstep/base/error.h"
#include "lockstep/base/mapping.h"
#include "lockstep/base/unique_fd.h"
#include "lockstep/base/words.h"
#include "mpitrace/profile.h"

namespace lockstep::mpitrace {
namespace {

constexpr std::string_view beginning = ".lockstep_mpitrace.";

struct Found {
  std::string path;
  UniqueFd lock;
  RankProfile profile;
};
/// Of one job and one start of it.
using Jobs = std::map<std::pair<std::string, std::string>, std::vector<Found>>;

/// False while its rank lives, for which it waits if that is of `run`.
bool lock(int fd, const std::string& run, Deadline deadline) {
  while (::flock(fd, LOCK_EX | LOCK_NB) != 0) {
    Header header = {};
    const bool is_ours = !run.empty() && ::pread(fd, &header, sizeof(header), 0) == sizeof(header) &&
                         run == std::string(header.run, ::strnlen(header.run, sizeof(header.run)));
    if (!is_ours || deadline.expired()) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return true;
}

void look_at(const std::string& path, const std::string& run, Deadline deadline, Jobs& jobs) {
  UniqueFd fd(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (!fd || !lock(fd.get(), run, deadline)) return;
  const Mapping table = Mapping::of_file(fd.get(), page_bytes, Mapping::Access::read, path);
  RankProfile profile = read_profile(table.bytes(), path);
  if (!run.empty() && profile.run != run) return;
  std::vector<Found>& job = jobs[{profile.job, profile.run}];
  job.push_back({path, std::move(fd), std::move(profile)});
}

Jobs find_tables(const std::string& folder, const std::string& run, Rescued& rescued) {
  constexpr auto patience = std::chrono::seconds(5);
  const Deadline deadline = Deadline::after(patience);
  Jobs jobs;
  std::error_code error;
  std::filesystem::directory_iterator files(folder, error);
  if (error) throw_system(folder, error.value());
  for (const auto& entry : files) {
    if (!entry.path().filename().string().starts_with(beginning)) continue;
    try {
      look_at(entry.path(), run, deadline, jobs);
    } catch (const std::exception& problem) {
      rescued.lines.push_back(std::string(problem.what()) + "; it stays");
      rescued.has_failed = true;
    }
  }
  return jobs;
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

}  // namespace

Rescued rescue(const std::string& folder, const std::string& run, bool all) {
  Rescued rescued;
  const Jobs jobs = find_tables(folder, run, rescued);
  for (const auto& [names, tables] : jobs) {
    try {
      write_job(folder, names.first, tables, all, rescued);
    } catch (const std::exception& problem) {
      rescued.lines.push_back(std::string(problem.what()) + "; the tables stay");
      rescued.has_failed = true;
    }
  }
  return rescued;
}

}  // namespace lockstep::mpitrace
