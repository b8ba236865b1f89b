// How much processor time cgroups leave to this process. A container's limit is such a quota: the affinity
// mask still shows all cores of the machine.
#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>

#include "lockstep/base/system_file.h"
#include "lockstep/topology/topology.h"

namespace lockstep::topology::detail {
namespace {

constexpr int deepest_group = 64;

bool leads_out(std::string_view path) {
  return path.empty() || path.front() != '/' || path.find("/..") != std::string_view::npos;
}

bool has_controller(std::string_view list, std::string_view name) {
  while (!list.empty()) {
    const std::size_t comma = std::min(list.find(','), list.size());
    if (list.substr(0, comma) == name) return true;
    list.remove_prefix(std::min(comma + 1, list.size()));
  }
  return false;
}

void tighten(std::optional<int>& quota, std::optional<int> other) {
  if (other) quota = quota ? std::min(*quota, *other) : other;
}

std::optional<int> quota_of_folder(const std::string& folder, bool unified) {
  if (unified) return parse_quota(base::system_line(folder + "/cpu.max"));
  return parse_quota(base::system_line(folder + "/cpu.cfs_quota_us") + " " +
                     base::system_line(folder + "/cpu.cfs_period_us"));
}

}  // namespace

std::vector<CgroupPath> parse_cgroup_paths(std::string_view proc_self_cgroup, std::string_view controller) {
  std::vector<CgroupPath> groups;  // of lines "number:controllers:path"
  while (!proc_self_cgroup.empty()) {
    const std::size_t end = std::min(proc_self_cgroup.find('\n'), proc_self_cgroup.size());
    const std::string_view line = proc_self_cgroup.substr(0, end);
    proc_self_cgroup.remove_prefix(std::min(end + 1, proc_self_cgroup.size()));
    const std::size_t first = line.find(':');
    const std::size_t second = first == std::string_view::npos ? first : line.find(':', first + 1);
    if (second == std::string_view::npos || leads_out(line.substr(second + 1))) continue;
    const std::string_view controllers = line.substr(first + 1, second - first - 1);
    const bool unified = line.substr(0, first) == "0" && controllers.empty();
    if (unified || has_controller(controllers, controller))
      groups.push_back({unified, std::string(line.substr(second + 1))});
  }
  return groups;
}

std::optional<int> parse_quota(std::string_view quota_and_period) {
  std::int64_t quota = 0;
  std::int64_t period = 0;
  const char* end = quota_and_period.data() + quota_and_period.size();
  const auto first = std::from_chars(quota_and_period.data(), end, quota);
  if (first.ec != std::errc() || first.ptr == end || *first.ptr != ' ') return std::nullopt;
  const auto second = std::from_chars(first.ptr + 1, end, period);
  if (second.ec != std::errc() || second.ptr != end) return std::nullopt;
  if (quota <= 0 || period <= 0 || quota / period >= 1'000'000) return std::nullopt;
  return static_cast<int>(quota / period + (quota % period != 0 ? 1 : 0));
}

std::optional<int> find_quota(const std::vector<CgroupPath>& groups, const std::string& mount) {
  static constexpr std::array unified_trees = {"", "/unified"};
  static constexpr std::array cpu_trees = {"/cpu", "/cpu,cpuacct"};
  std::optional<int> quota;
  for (const CgroupPath& group : groups) {
    for (const char* tree : group.unified ? unified_trees : cpu_trees) {
      std::string path =
          group.path;  // inside a container it may not be there; its parents up to the root are
      for (int depth = 0; depth < deepest_group; ++depth) {
        tighten(quota, quota_of_folder(mount + tree + path, group.unified));
        if (path.size() <= 1) break;
        path.resize(std::max<std::size_t>(path.rfind('/'), 1));
        if (path == "/") path.clear();
      }
    }
  }
  return quota;
}

std::optional<int> this_process_quota() {
  return find_quota(parse_cgroup_paths(base::system_text("/proc/self/cgroup")), "/sys/fs/cgroup");
}

}  // namespace lockstep::topology::detail
