#include "lockstep/launch/hosts/allocation.h"

#include <fmt/core.h>

#include <algorithm>

#include "lockstep/base/env.h"
#include "lockstep/base/error.h"
#include "lockstep/base/words.h"
#include "lockstep/launch/hosts/node_list.h"

namespace lockstep::launch {
namespace {

/// Of each of `hosts`; the tasks that were asked for, or else what the cores that were given are enough for.
std::vector<int> slurm_slots(std::size_t hosts) {
  const char* name = "SLURM_TASKS_PER_NODE";
  auto text = env::text(name);
  std::int64_t cores = 1;
  if (!text) {
    name = "SLURM_JOB_CPUS_PER_NODE";
    text = env::text(name);
    cores = env::integer("SLURM_CPUS_PER_TASK", 1, most_slots).value_or(1);
  }
  if (!text) return std::vector<int>(hosts, 1);
  std::vector<int> slots = parse_counts(*text, name);
  if (slots.size() != hosts) {
    throw_invalid_argument(fmt::format("{}={} is about {}, but SLURM_JOB_NODELIST has {}", name, *text,
                                       base::counted(static_cast<std::int64_t>(slots.size()), "host"),
                                       hosts));
  }
  for (int& count : slots) {
    count = std::max(1, count / static_cast<int>(cores));
    if (count > most_slots)
      throw_invalid_argument(fmt::format("{}={}: a host has {} slots at most", name, *text, most_slots));
  }
  return slots;
}

Allocation from_slurm(const std::string& list) {
  Allocation allocation{
      .source = fmt::format("Slurm's job {} (SLURM_JOB_NODELIST)", env::text("SLURM_JOB_ID").value_or("?"))};
  const auto names = parse_node_list(list, "SLURM_JOB_NODELIST");
  const auto slots = slurm_slots(names.size());
  for (std::size_t i = 0; i < names.size(); ++i) allocation.hosts.push_back({names[i], slots[i]});
  return allocation;
}

/// Each line is a slot, or with Cobalt a host.
Allocation from_node_file(Allocation::System system, const char* variable, const std::string& path) {
  Allocation allocation{.system = system, .has_slots = system == Allocation::System::pbs};
  allocation.source = fmt::format("{} ({}={})", allocation.has_slots ? "PBS" : "Cobalt", variable, path);
  allocation.hosts = read_hostfile(path, fmt::format("{}={}", variable, path));
  return allocation;
}

}  // namespace

std::optional<Allocation> find_allocation() {
  if (const auto list = env::text("SLURM_JOB_NODELIST")) return from_slurm(*list);
  if (const auto path = env::text("PBS_NODEFILE"))
    return from_node_file(Allocation::System::pbs, "PBS_NODEFILE", *path);
  if (const auto path = env::text("COBALT_NODEFILE"))
    return from_node_file(Allocation::System::cobalt, "COBALT_NODEFILE", *path);
  return std::nullopt;
}

std::vector<Host> share_evenly(int ranks, const std::vector<Host>& hosts) {
  std::vector<Host> shares;
  const int count = static_cast<int>(hosts.size());
  for (int i = 0; i < count; ++i) {
    const int share = ranks / count + (i < ranks % count ? 1 : 0);
    if (share > 0) shares.push_back({hosts[static_cast<std::size_t>(i)].name, share});
  }
  return shares;
}

}  // namespace lockstep::launch
