#include "lockstep/group/host_hint.h"

#include <sys/stat.h>

#include <set>
#include <sstream>

#include "lockstep/base/env.h"
#include "lockstep/base/error.h"
#include "lockstep/base/quote.h"
#include "lockstep/base/system_file.h"
#include "lockstep/topology/topology.h"

namespace lockstep {

/// The first two are a guess which ranks share memory: the same boot of a kernel, and the same network namespace and, where
/// several launchers run there, the same one of them. Handing descriptors over then proves it. Then the node of that memory
/// that it runs beside, its cores, the engine that it was told to take, and its place.
std::string HostHint::own(EngineChoice engine, int in_page) {
  const std::string boot = base::system_line("/proc/sys/kernel/random/boot_id");
  struct stat status {};
  if (::stat("/proc/self/ns/net", &status) != 0) throw_system("/proc/self/ns/net");
  const auto node = env::text("LOCKSTEP_NODE");
  return (boot.empty() ? "unknown" : boot) + " " + std::to_string(status.st_ino) + (node ? "/" + *node : "") +
         " " + std::to_string(topology::memory_node()) + " " + topology::core_list() + " " +
         to_string(engine) + " " + std::to_string(in_page);
}

HostHint HostHint::parse(int rank, const std::string& text) {
  std::istringstream words(text);
  HostHint hint;
  std::string cores;
  if (words >> hint.machine >> hint.place >> hint.memory_node >> cores >> hint.engine >> hint.in_page) {
    if (auto known = topology::cores_of_list(cores)) {
      hint.cores = std::move(*known);
      return hint;
    }
  }
  throw_invalid_argument("rank " + std::to_string(rank) + " says " + base::quote(text) +
                         " of its host, in other words than this rank; do all ranks have the same Lockstep?");
}

PerRank<HostHint> HostHint::parse_all(const std::vector<std::string>& texts) {
  PerRank<HostHint> hints;
  for (const std::string& text : texts) hints.push_back(parse(hints.size(), text));
  const int other = hints.find_if([&](const HostHint& hint) { return hint.engine != hints[0].engine; });
  if (other < hints.size()) {
    throw_invalid_argument("rank 0 has the engine " + hints[0].engine + ", rank " + std::to_string(other) +
                           " the engine " + hints[other].engine +
                           ": LOCKSTEP_ENGINE, or InitOptions::engine, has to be the same everywhere");
  }
  return hints;
}

double ranks_per_core_here(const PerRank<HostHint>& hints, int rank) {
  std::set<int> cores;
  int ranks = 0;
  for (const HostHint& hint : hints) {
    if (hint.machine != hints[rank].machine) continue;
    ++ranks;
    cores.insert(hint.cores.begin(), hint.cores.end());
  }
  return static_cast<double>(ranks) / static_cast<double>(cores.size());
}

}  // namespace lockstep
