// Which ranks of a call share a host, for algorithms that combine inside hosts first (two_level.h).
//
// What crosses a network is cut into slices, one for each rank of the smallest host. On every host one rank owns a
// slice: it sends what its host has of it, and receives what the others have. So all ranks of a host work, and each
// byte crosses once.
#pragma once

#include <algorithm>
#include <climits>
#include <vector>

#include "lockstep/schedule/call.h"

namespace lockstep::schedule {

struct Hosts {
  explicit Hosts(const Call& call) {
    for (int rank = 0; rank < call.ranks; ++rank) {
      const int host = call.host_of.empty() ? 0 : call.host_of[static_cast<std::size_t>(rank)];
      if (host >= count()) ranks.resize(static_cast<std::size_t>(host) + 1);
      auto& there = ranks[static_cast<std::size_t>(host)];
      host_of.push_back(host);
      local_of.push_back(static_cast<int>(there.size()));
      there.push_back(rank);
    }
    for (const auto& there : ranks) slices = std::min(slices, static_cast<int>(there.size()));
    mine = of(host_of, call.rank);
    local = of(local_of, call.rank);
  }

  int count() const { return static_cast<int>(ranks.size()); }
  /// The ranks of this rank's host.
  const std::vector<int>& here() const { return ranks[static_cast<std::size_t>(mine)]; }
  bool is_alone() const { return here().size() == 1; }
  bool is_here(int rank) const { return of(host_of, rank) == mine; }

  int owner(int host, int slice) const {
    return ranks[static_cast<std::size_t>(host)][static_cast<std::size_t>(slice)];
  }
  /// Whether this rank owns a slice: the one with its local number.
  bool owns_one() const { return local < slices; }

  /// Who on `host` has to do with the block of `rank`, which is on another one.
  int partner(int host, int rank) const { return owner(host, of(local_of, rank) % slices); }
  /// Ranks of other hosts with whose blocks `rank` has to do.
  std::vector<int> partners_of(int rank) const {
    std::vector<int> found;
    const int host = of(host_of, rank);
    for (std::size_t other = 0; other < host_of.size(); ++other) {
      if (host_of[other] != host && partner(host, static_cast<int>(other)) == rank)
        found.push_back(static_cast<int>(other));
    }
    return found;
  }

  std::vector<std::vector<int>> ranks;  ///< of each host, in the order of the group
  std::vector<int> host_of, local_of;   ///< of each rank
  int mine = 0;                         ///< this rank's host
  int local = 0;                        ///< its number there
  int slices = INT_MAX;

 private:
  static int of(const std::vector<int>& numbers, int rank) { return numbers[static_cast<std::size_t>(rank)]; }
};

/// Hosts one after another, beginning with a rank's, as one of them sees them.
class HostChain {
 public:
  HostChain(const Hosts& hosts, int first_rank)
      : hosts_(hosts.count()),
        first_(hosts.host_of[static_cast<std::size_t>(first_rank)]),
        place_(wrapped(hosts.mine - first_, hosts_)) {}
  bool is_first() const { return place_ == 0; }
  bool is_last() const { return place_ == hosts_ - 1; }
  int before() const { return wrapped(first_ + place_ - 1, hosts_); }
  int after() const { return wrapped(first_ + place_ + 1, hosts_); }

 private:
  int hosts_;
  int first_;
  int place_;  // of this host
};

}  // namespace lockstep::schedule
