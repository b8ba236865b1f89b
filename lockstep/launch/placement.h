// Ranks that each start a thread per core fight for the cores, and ranks with one thread each leave cores
// idle: both are what users of other launchers complain about. So the cores are split, the user's own
// settings win, and one line says what was done.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lockstep/topology/topology.h"

namespace lockstep::launch {

struct PlacementRequest {
  int ranks = 1;
  bool pin = true;
  std::optional<std::string> user_threads = std::nullopt;  ///< OMP_NUM_THREADS as the user set it: stays
  std::optional<int> cores_per_rank = std::nullopt;  ///< SLURM_CPUS_PER_TASK: what a rank may take at most
};

struct Placement {
  std::vector<std::vector<int>> pinned = {};  ///< cores of each rank; empty: ranks are not pinned
  int cores = 1;                              ///< that all ranks of the host have together
  int threads = 0;                            ///< OMP_NUM_THREADS to set; 0: leave it
  std::string line = {};                      ///< for stderr; empty if nothing was decided for the user
};

/// Ranks are pinned only if each gets a core to itself, and not where a quota is smaller than the affinity
/// mask: all containers of a machine would choose the same cores.
Placement place(const topology::Cores& cores, const PlacementRequest& request);

/// Reads OMP_NUM_THREADS and SLURM_CPUS_PER_TASK. Error{invalid_argument} if the latter is no number.
PlacementRequest placement_request(int ranks, bool pin);

}  // namespace lockstep::launch
