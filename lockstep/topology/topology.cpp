#include "lockstep/topology/topology.h"

#include <fmt/core.h>
#include <hwloc.h>
#include <sched.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <system_error>
#include <thread>

#include "lockstep/base/env.h"
#include "lockstep/base/error.h"
#include "lockstep/base/split.h"

namespace lockstep::topology {
namespace {

constexpr int most_cores = 1 << 16;

// A kernel with more cores than cpu_set_t holds refuses small masks with EINVAL, so the mask grows.
std::vector<int> affinity_mask() {
  for (int size = CPU_SETSIZE; size <= most_cores; size *= 2) {
    const auto free_set = [](cpu_set_t* set) { CPU_FREE(set); };
    const std::unique_ptr<cpu_set_t, decltype(free_set)> set(CPU_ALLOC(static_cast<std::size_t>(size)),
                                                             free_set);
    const std::size_t bytes = CPU_ALLOC_SIZE(static_cast<std::size_t>(size));
    if (set == nullptr) break;
    if (::sched_getaffinity(0, bytes, set.get()) != 0) continue;
    std::vector<int> numbers;
    for (int core = 0; core < size; ++core) {
      if (CPU_ISSET_S(static_cast<std::size_t>(core), bytes, set.get())) numbers.push_back(core);
    }
    if (!numbers.empty()) return numbers;
  }
  std::vector<int> numbers(std::max(1U, std::thread::hardware_concurrency()));
  for (std::size_t core = 0; core < numbers.size(); ++core) numbers[core] = static_cast<int>(core);
  return numbers;
}

// hwloc numbers hardware threads "logically", so that neighbours in the machine are neighbours in the order.
std::vector<int> neighbours_first(const std::vector<int>& mask) {
  hwloc_topology_t raw = nullptr;
  if (hwloc_topology_init(&raw) != 0) return mask;
  const std::unique_ptr<hwloc_topology, decltype(&hwloc_topology_destroy)> topology(raw,
                                                                                    &hwloc_topology_destroy);
  if (hwloc_topology_load(raw) != 0) return mask;
  const std::set<int> ours(mask.begin(), mask.end());
  std::vector<int> ordered;
  for (hwloc_obj_t unit = hwloc_get_next_obj_by_type(raw, HWLOC_OBJ_PU, nullptr); unit != nullptr;
       unit = hwloc_get_next_obj_by_type(raw, HWLOC_OBJ_PU, unit)) {
    const auto number = static_cast<int>(unit->os_index);
    const bool allowed = hwloc_bitmap_isset(hwloc_topology_get_allowed_cpuset(raw), unit->os_index) != 0;
    if (allowed && ours.contains(number)) ordered.push_back(number);
  }
  return ordered.empty() ? mask : ordered;
}

int limited(std::size_t cores, std::optional<int> quota) {
  const int count = std::max(1, static_cast<int>(cores));
  return quota ? std::min(*quota, count) : count;
}

}  // namespace

int Cores::count() const { return limited(numbers.size(), quota); }

std::vector<std::vector<int>> split_cores(const std::vector<int>& cores, int local_ranks) {
  const auto ranks = static_cast<std::size_t>(local_ranks);
  std::vector<std::vector<int>> shares(ranks);
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    const std::size_t begin = rank * cores.size() / ranks;
    const std::size_t end = (rank + 1) * cores.size() / ranks;
    for (std::size_t i = begin; i < end; ++i) shares[rank].push_back(cores[i]);
    if (cores.size() < ranks) shares[rank] = {cores[rank % cores.size()]};
  }
  return shares;
}

double ranks_per_core(int local_ranks) {
  const auto told = env::integer("LOCKSTEP_CORES", 1, most_cores);
  return static_cast<double>(local_ranks) / static_cast<double>(told ? *told : available_cores());
}

std::string core_list() {
  const std::vector<int> cores = affinity_mask();
  std::string list;
  for (std::size_t first = 0, end = 0; first < cores.size(); first = end) {
    for (end = first + 1; end < cores.size() && cores[end] == cores[end - 1] + 1;) ++end;
    list += fmt::format("{}{}", list.empty() ? "" : ",", cores[first]);
    if (end - first > 1) list += fmt::format("-{}", cores[end - 1]);
  }
  return list;
}

std::optional<std::vector<int>> cores_of_list(std::string_view list) {
  std::vector<int> cores;
  const auto number = [](std::string_view text) {
    int value = -1;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    const bool is_sound = error == std::errc() && end == text.data() + text.size();
    return is_sound && value >= 0 && value < most_cores ? std::optional(value) : std::nullopt;
  };
  for (const std::string& part : base::split(list, ',')) {
    const std::size_t dash = part.find('-');
    const auto first = number(part.substr(0, dash));
    const auto last = dash == std::string::npos ? first : number(part.substr(dash + 1));
    if (!first || !last || *first > *last) return std::nullopt;
    for (int core = *first; core <= *last; ++core) cores.push_back(core);
    if (cores.size() > static_cast<std::size_t>(most_cores)) return std::nullopt;
  }
  return cores.empty() ? std::nullopt : std::optional(cores);
}

Cores find_cores() { return {neighbours_first(affinity_mask()), detail::this_process_quota()}; }

int detail::memory_node(const std::string& folder, const std::vector<int>& cores) {
  int found = -1;
  std::error_code problem;
  for (const auto& entry : std::filesystem::directory_iterator(folder, problem)) {
    const std::string name = entry.path().filename().string();
    const bool is_beside =
        name.starts_with("node") && std::ranges::any_of(cores, [&](int core) {
          return std::filesystem::exists(entry.path() / fmt::format("cpu{}", core), problem);
        });
    if (!is_beside) continue;
    if (found >= 0) return -1;
    found = std::stoi(name.substr(4));
  }
  return found;
}

int memory_node() { return detail::memory_node("/sys/devices/system/node", affinity_mask()); }

int available_cores() { return limited(affinity_mask().size(), detail::this_process_quota()); }

}  // namespace lockstep::topology
