#include "named_hosts.h"

#include <iterator>
#include <sstream>
#include <utility>

#include "lockstep/base/env.h"
#include "lockstep/base/error.h"
#include "lockstep/launch/hosts/allocation.h"

NamedHosts named_hosts(const std::string& list, const std::string& file) {
  if (!list.empty() && !file.empty())
    lockstep::throw_invalid_argument("-H and --hostfile both say where; pass one of them");
  if (!list.empty()) return {.hosts = lockstep::launch::parse_host_list(list)};
  if (!file.empty()) return {.hosts = lockstep::launch::read_hostfile(file)};
  auto allocation = lockstep::launch::find_allocation();
  if (!allocation) return {};
  return {.hosts = std::move(allocation->hosts),
          .has_slots = allocation->has_slots,
          .by_allocation = true,
          .by_slurm = allocation->system == lockstep::launch::Allocation::System::slurm};
}

std::vector<std::string> remote_shell(const std::string& flag) {
  std::istringstream words(!flag.empty() ? flag : lockstep::env::text("LOCKSTEP_SSH").value_or(""));
  return {std::istream_iterator<std::string>(words), {}};
}
