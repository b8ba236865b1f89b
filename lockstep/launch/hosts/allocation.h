// Inside an allocation of a batch system the hosts need not be named again: Slurm, PBS and Cobalt say in variables which
// they have given.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lockstep/launch/hosts/host_list.h"

namespace lockstep::launch {

struct Allocation {
  enum class System { slurm, pbs, cobalt } system = System::slurm;
  std::string source = {};  ///< for messages: "Slurm's job 17 (SLURM_JOB_NODELIST)"
  std::vector<Host> hosts = {};
  /// Whether the system said how many slots each has. Cobalt does not: ranks are then dealt out evenly.
  bool has_slots = true;
};

/// What the variables of this process say; nullopt outside of an allocation. Where several systems say something, the order
/// is that of System. Throws Error{invalid_argument} that names variable or file, and what is wrong in it.
std::optional<Allocation> find_allocation();

/// `ranks` over all hosts as evenly as it goes, the first ones having one more; hosts without any are left out.
std::vector<Host> share_evenly(int ranks, const std::vector<Host>& hosts);

}  // namespace lockstep::launch
