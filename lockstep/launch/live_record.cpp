#include "lockstep/launch/live_record.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <utility>

#include "lockstep/base/process_status.h"
#include "lockstep/base/system_file.h"
#include "lockstep/launch/flight_recorder.h"
#include "lockstep/view/profile/page_record.h"

namespace lockstep::launch {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t most_environment = std::size_t{1} << 20;

std::multimap<pid_t, pid_t> children_by_parent() {
  std::multimap<pid_t, pid_t> children;
  for (const pid_t pid : base::numbers_in("/proc")) children.emplace(base::read_status(pid).parent, pid);
  return children;
}

/// `pid` first, then what it has started, generation by generation.
std::vector<pid_t> family_of(pid_t pid) {
  const auto children = children_by_parent();
  std::vector<pid_t> family = {pid};
  for (std::size_t i = 0; i < family.size() && family.size() <= children.size(); ++i) {
    const auto [begin, end] = children.equal_range(family[i]);
    for (auto child = begin; child != end; ++child) family.push_back(child->second);
  }
  return family;
}

/// Where /proc shows that a process has a control page open; "": nowhere that we may look.
std::string place_of_page(pid_t pid) {
  std::error_code error;
  fs::directory_iterator entry(fmt::format("/proc/{}/fd", pid), error);
  for (const fs::directory_iterator end; !error && entry != end; entry.increment(error)) {
    std::error_code ignored;
    const std::string target = fs::read_symlink(entry->path(), ignored);
    if (target.starts_with(std::string("/memfd:") + ControlPage::file_name)) return entry->path();
  }
  return {};
}

UniqueFd open_page_of(pid_t pid) {
  const std::string place = place_of_page(pid);
  return place.empty() ? UniqueFd() : UniqueFd(::open(place.c_str(), O_RDONLY | O_CLOEXEC));
}

/// The same for all processes that have one page; 0: none that we may look at.
ino_t page_number(pid_t pid) {
  struct stat found {};
  const std::string place = place_of_page(pid);
  return !place.empty() && ::stat(place.c_str(), &found) == 0 ? found.st_ino : 0;
}

/// Root may look at everybody's.
bool is_ours(pid_t pid) {
  struct stat found {};
  return ::stat(fmt::format("/proc/{}", pid).c_str(), &found) == 0 && found.st_uid == ::geteuid();
}

std::string program_of(pid_t pid) {
  std::error_code ignored;
  return fs::read_symlink(fmt::format("/proc/{}/exe", pid), ignored);
}

/// The launcher's guard holds no page, and is the one that was called; see run.h.
pid_t launcher_of(pid_t holder) {
  const pid_t parent = base::read_status(holder).parent;
  const std::string program = program_of(holder);
  return !program.empty() && program_of(parent) == program ? parent : holder;
}

/// What the launcher has told its ranks.
std::string name_in_environment(pid_t pid) {
  constexpr std::string_view variable = "LOCKSTEP_JOB=";
  const std::string all = '\0' + base::system_text(fmt::format("/proc/{}/environ", pid), most_environment);
  const std::size_t found = all.find('\0' + std::string(variable));
  if (found == std::string::npos) return {};
  return all.c_str() + found + 1 + variable.size();
}

/// `holders`: all that have the page of one job.
RunningJob job_of(const std::vector<pid_t>& holders) {
  const auto is_below_none = [&](pid_t pid) {
    return !std::ranges::count(holders, base::read_status(pid).parent);
  };
  const auto first = std::ranges::find_if(holders, is_below_none);
  const pid_t holder = first == holders.end() ? holders.front() : *first;
  RunningJob job{.pid = launcher_of(holder), .holder = holder};
  for (auto pid = holders.rbegin(); pid != holders.rend() && job.name.empty(); ++pid)
    job.name = name_in_environment(*pid);
  return job;
}

}  // namespace

std::vector<RunningJob> running_jobs() {
  std::map<ino_t, std::vector<pid_t>> holders;
  for (const pid_t pid : base::numbers_in("/proc")) {
    if (!is_ours(pid)) continue;
    if (const ino_t page = page_number(pid); page != 0) holders[page].push_back(pid);
  }
  std::vector<RunningJob> jobs;
  for (auto& [page, pids] : holders) {
    std::ranges::sort(pids);
    jobs.push_back(job_of(pids));
  }
  std::ranges::sort(jobs, {}, &RunningJob::pid);
  return jobs;
}

RunningJob running_job_of(pid_t pid) {
  const std::vector<pid_t> family = family_of(pid);
  std::vector<pid_t> holders;
  std::ranges::copy_if(family, std::back_inserter(holders),
                       [](pid_t member) { return !place_of_page(member).empty(); });
  if (holders.empty()) {
    throw_invalid_argument(
        fmt::format("process {} has joined no job of Lockstep, nor has any below it (or they are not ours to "
                    "look at): pass the process id of the job's `lockstep run`, or of a rank",
                    pid));
  }
  std::map<ino_t, std::vector<pid_t>> jobs;
  for (const pid_t holder : holders) jobs[page_number(holder)].push_back(holder);
  auto chosen = jobs.begin();
  if (jobs.size() > 1) {  // a job's ranks may have started others
    chosen = std::ranges::find_if(jobs, [&](const auto& job) { return job_of(job.second).pid == pid; });
    if (chosen == jobs.end()) {
      std::string pids;
      for (const auto& [page, of_job] : jobs)
        pids += fmt::format("{}{}", pids.empty() ? "" : ", ", job_of(of_job).pid);
      throw_invalid_argument(fmt::format(
          "below process {} there are several jobs: pass the process id of one's `lockstep run`: {}", pid,
          pids));
    }
  }
  RunningJob job = job_of(chosen->second);
  job.pid = pid;
  return job;
}

std::optional<ControlPage> JobPages::next() {
  const ino_t number = page_number(job_.holder);
  if (number == number_ || number == 0) return std::nullopt;
  UniqueFd fd = open_page_of(job_.holder);
  if (!fd) return std::nullopt;
  number_ = number;
  return ControlPage::read_only(std::move(fd));
}

void note_states(trace::FlightRecord& record) {
  for (trace::FlightRank& rank : record.ranks) {
    if (rank.joined) rank.state = state_of(rank.pid);
  }
}

trace::FlightRecord read_running(const ControlPage& page) {
  trace::FlightRecord record = view::read_record(page);
  record.goes_on = true;
  record.at_ns = trace::now_ns();
  note_states(record);
  return record;
}

trace::FlightRecord read_running_job(pid_t pid) {
  const auto page = JobPages(running_job_of(pid)).next();
  if (!page) throw_invalid_argument(fmt::format("process {} has just left its job", pid));
  return read_running(*page);
}

}  // namespace lockstep::launch
