// How a rank finds out who it is. Three families of names say the same, so that a program written for
// torchrun or for Horovod starts as well; LOCKSTEP_* is what init() prefers.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::launch {

using Variables = std::vector<std::pair<std::string, std::string>>;

/// What all ranks of a job are told alike.
struct JobFacts {
  int ranks = 1;
  std::string job = {};           ///< its random name
  std::string store = {};         ///< endpoint text of the job's store
  std::uint16_t master_port = 0;  ///< free, for programs that meet there
  int control_fd = -1;            ///< the control page, inherited
  int secret_fd = -1;             ///< the job's secret, inherited
  int cores = 1;                  ///< that the ranks of this host share: LOCKSTEP_CORES
  int threads = 0;                ///< OMP_NUM_THREADS; 0 leaves it as it is
};

Variables rank_variables(int rank, const JobFacts& facts);

/// `inherited` ("NAME=value" each) with `variables` in place of what was there under their names.
std::vector<std::string> merge_environment(const std::vector<std::string>& inherited,
                                           const Variables& variables);

/// This process's environment.
std::vector<std::string> this_environment();

}  // namespace lockstep::launch
