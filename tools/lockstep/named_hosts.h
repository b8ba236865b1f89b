// Hosts as the user names them, or else the batch system, and the command that gets to them: for `lockstep run` and `doctor`.
#pragma once

#include <string>
#include <vector>

#include "lockstep/launch/hosts/host_list.h"

struct NamedHosts {
  std::vector<lockstep::launch::Host> hosts = {};  ///< empty: nobody names any
  bool has_slots = true;                           ///< how many ranks each takes is known
  bool by_allocation = false;                      ///< the batch system has named them
  bool by_slurm = false;                           ///< and it is this one
};

/// `list`: of -H, `file`: of --hostfile; "" where that was not given. Throws Error{invalid_argument} where both say where, or one is
/// no list of hosts.
NamedHosts named_hosts(const std::string& list, const std::string& file);

/// The words of `flag`, that of --ssh, or else of LOCKSTEP_SSH; none where neither is set.
std::vector<std::string> remote_shell(const std::string& flag);
