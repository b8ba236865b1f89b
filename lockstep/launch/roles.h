// A job may be made of ranks with different tasks, as servers and workers are: each role has a name, a number of ranks, maybe a
// program of its own, and says what the death of one of its ranks means.
#pragma once

#include <string>
#include <vector>

namespace lockstep::launch {

struct Role {
  std::string name = {};                  ///< ROLE_NAME; empty: "default"
  int ranks = 0;                          ///< that it has; roles fill the job's ranks in their order
  std::vector<std::string> command = {};  ///< program and arguments; empty: the job's
  bool is_tolerated = false;              ///< the job goes on without a rank that has died
  int restarts = 0;                       ///< how often each rank of it is started again by itself
};

struct RoleOfRank {
  std::size_t number = 0;  ///< in the list of roles
  int rank = 0;            ///< within it
};

/// REQUIRES: the roles have more ranks than `rank`.
inline RoleOfRank role_of(const std::vector<Role>& roles, int rank) {
  std::size_t number = 0;
  while (rank >= roles[number].ranks) rank -= roles[number++].ranks;
  return {.number = number, .rank = rank};
}

}  // namespace lockstep::launch
