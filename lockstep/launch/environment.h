// How a rank finds out who it is. Three families of names say the same, so that a program written for
// torchrun or for Horovod starts as well; LOCKSTEP_* is what init() prefers.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/launch/roles.h"

namespace lockstep::launch {

using Variables = std::vector<std::pair<std::string, std::string>>;

/// Where a rank is among all.
struct RankPlace {
  int rank = 0;
  int local_rank = 0;
  int local_size = 1;
  int host = 0;        ///< torchrun's GROUP_RANK
  int hosts = 1;       ///< and GROUP_WORLD_SIZE
  int cross_rank = 0;  ///< Horovod's: of the hosts that have this local rank, which
  int cross_size = 1;  ///< and how many those are
};

/// Of all ranks of a job, given how many each host takes: ranks fill host after host. By rank.
std::vector<RankPlace> place_ranks(const std::vector<int>& ranks_of_hosts);

/// What the ranks of a host are told alike.
struct JobFacts {
  int ranks = 1;                               ///< of the job
  std::string job = {};                        ///< its random name
  std::string store = {};                      ///< endpoint text of the job's store
  std::string master_address = {"127.0.0.1"};  ///< of rank 0's host, as all hosts reach it
  std::uint16_t master_port = 0;               ///< free there, for programs that meet there
  std::string host_name = {};                  ///< as the user calls this host
  int node = -1;           ///< of several launchers on this machine, which; their ranks share no memory
  int control_fd = -1;     ///< the control page, inherited
  int secret_fd = -1;      ///< the job's secret, inherited
  int cores = 1;           ///< that the ranks of this host share: LOCKSTEP_CORES
  int threads = 0;         ///< OMP_NUM_THREADS; 0 leaves it as it is
  int restarts = 0;        ///< how often the job's ranks have been started before
  int max_restarts = 0;    ///< how often they may be
  bool has_views = false;  ///< ranks may die and come back
};

/// `incarnation`: how often this rank was started again by itself.
Variables rank_variables(const RankPlace& place, const JobFacts& facts, const std::vector<Role>& roles = {},
                         int incarnation = 0);

/// What a program is told of itself where neither its environment (`inherited`, "NAME=value" each) nor `variables` say anything of it:
/// that Python shows where it was when a signal ends it, which its rank's last lines then have.
Variables default_variables(const std::vector<std::string>& inherited, const Variables& variables);

/// `inherited` ("NAME=value" each) with `variables` in place of what was there under their names.
std::vector<std::string> merge_environment(const std::vector<std::string>& inherited,
                                           const Variables& variables);

/// What other hosts get of an environment: all but what is about its host, its shell or its rank. `more` follows, in place of
/// what was there.
Variables variables_for_others(const std::vector<std::string>& environment, const Variables& more);

/// This process's environment.
std::vector<std::string> this_environment();

}  // namespace lockstep::launch
