// What `lockstep doctor` looks at, one after the other. Each adds a section to the report, and what is wrong to its problems;
// none fails where something cannot be found out: the report says so.
#pragma once

#include <vector>

#include "lockstep/launch/hosts/host_list.h"
#include "lockstep/launch/run.h"
#include "report.h"

namespace doctor {

/// Two ranks join, and average an array: whether training would run at all. REQUIRES: this process has one thread.
void try_ranks(Report& report);
/// Processor, cores that we may use, NUMA, quota.
void examine_cores(Report& report);
/// Main memory: how much, how fast, huge pages, /dev/shm.
void examine_memory(Report& report);
/// What the system lets a user do: open files, processes, reading another process's memory.
void examine_limits(Report& report);
/// Interfaces, their addresses and speeds.
void examine_network(Report& report);
/// GPUs and network cards, and how they are connected.
void examine_devices(Report& report);
/// libtorch, CUDA, and launchers of others.
void examine_software(Report& report);
/// Which algorithm each collective takes on `ranks` ranks of this host, and between hosts.
void examine_collectives(Report& report, int ranks);
/// Whether an agent starts on each of `hosts`. Nothing where there are none.
void examine_hosts(Report& report, const std::vector<lockstep::launch::Host>& hosts,
                   const lockstep::launch::RemoteOptions& remote);

}  // namespace doctor
