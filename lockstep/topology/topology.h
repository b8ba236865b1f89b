// How much of this host is ours: a batch system, `taskset` or a container usually leaves a process fewer
// cores than the machine has, and a job that starts a thread per core of the machine then runs ten times
// slower. Here "core" is what an affinity mask counts: one hardware thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::topology {

/// What this process may run on.
struct Cores {
  /// Numbers of the cores in the affinity mask, neighbours first: hardware threads of one physical core
  /// beside one another, then physical cores that share a cache, then NUMA nodes.
  std::vector<int> numbers = {};
  /// How many of them may be busy at once where a cgroup limits that: the quota rounded up, at least 1.
  std::optional<int> quota = std::nullopt;

  /// The smaller of the two; at least 1.
  int count() const;
};

/// Asks the affinity mask, hwloc (for the order, and for what the system allows) and the cgroups, v1 or v2.
/// What cannot be found out does not limit. Cost: some milliseconds.
Cores find_cores();

/// find_cores().count() without the order, in microseconds.
int available_cores();

/// The node of this host's memory (NUMA) that all cores of the affinity mask are beside; -1 if they are
/// beside several, or the system does not say. Memory without cores of its own does not count.
int memory_node();

/// Ranks of this host for each core that they share: what WaitPolicy::for_ranks_per_core wants to know. A
/// rank that its launcher has pinned sees its own cores only, so `lockstep run` leaves the number of the
/// whole job in LOCKSTEP_CORES. Errors: invalid_argument if that is no number.
double ranks_per_core(int local_ranks);

/// The affinity mask as others are told of it: "0-3,8".
std::string core_list();
/// The cores of such a list; nullopt for what is none.
std::optional<std::vector<int>> cores_of_list(std::string_view list);

/// The cores of each of `local_ranks` ranks: stretches of `cores`, in order, whose lengths differ by one at
/// most. With fewer cores than ranks, rank r shares core r modulo cores. REQUIRES: neither is empty.
std::vector<std::vector<int>> split_cores(const std::vector<int>& cores, int local_ranks);

namespace detail {
/// One cgroup that this process is in, from /proc/self/cgroup.
struct CgroupPath {
  bool unified = false;   ///< version 2
  std::string path = {};  ///< begins with '/'
};
/// Those that can limit processor time, or what else `controller` is about. Lines that make no sense, and paths that lead out of
/// the tree, are left out.
std::vector<CgroupPath> parse_cgroup_paths(std::string_view proc_self_cgroup,
                                           std::string_view controller = "cpu");
/// Version 2's cpu.max, "200000 100000" or "max 100000"; version 1's two files joined by a space, "-1
/// 100000". nullopt: no limit, or nothing that makes sense.
std::optional<int> parse_quota(std::string_view quota_and_period);
/// The tightest quota from the given groups up to the root of the tree mounted at `mount`, e.g.
/// "/sys/fs/cgroup".
std::optional<int> find_quota(const std::vector<CgroupPath>& groups, const std::string& mount);
std::optional<int> this_process_quota();
/// `folder` has a folder for each node, e.g. "/sys/devices/system/node".
int memory_node(const std::string& folder, const std::vector<int>& cores);
}  // namespace detail

}  // namespace lockstep::topology
