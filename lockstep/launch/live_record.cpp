#include "lockstep/launch/live_record.h"

#include <fcntl.h>
#include <fmt/core.h>

#include <filesystem>
#include <map>
#include <optional>
#include <vector>

#include "lockstep/base/process_status.h"
#include "lockstep/launch/flight_recorder.h"
#include "lockstep/view/profile/page_record.h"

namespace lockstep::launch {
namespace {

namespace fs = std::filesystem;

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

UniqueFd open_page_of(pid_t pid) {
  std::error_code error;
  fs::directory_iterator entry(fmt::format("/proc/{}/fd", pid), error);
  for (const fs::directory_iterator end; !error && entry != end; entry.increment(error)) {
    std::error_code ignored;
    const std::string target = fs::read_symlink(entry->path(), ignored);
    if (!target.starts_with(std::string("/memfd:") + ControlPage::file_name)) continue;
    UniqueFd fd(::open(entry->path().c_str(), O_RDONLY | O_CLOEXEC));
    if (fd) return fd;
  }
  return {};
}

}  // namespace

trace::FlightRecord read_running_job(pid_t pid) {
  for (const pid_t member : family_of(pid)) {
    UniqueFd fd = open_page_of(member);
    if (!fd) continue;
    const ControlPage page = ControlPage::read_only(std::move(fd));
    trace::FlightRecord record = view::read_record(page);
    record.goes_on = true;
    record.at_ns = trace::now_ns();
    for (trace::FlightRank& rank : record.ranks) {
      if (rank.joined) rank.state = state_of(rank.pid);
    }
    return record;
  }
  throw_invalid_argument(
      fmt::format("process {} has joined no job of Lockstep, nor has any below it (or they are not ours to "
                  "look at): pass the process id of the job's `lockstep run`, or of a rank",
                  pid));
}

}  // namespace lockstep::launch
