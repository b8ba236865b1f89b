// Who the ranks of a group are. A rank has a number in its group, by which all that belongs to the group calls
// it, and others by which the world, the memory that it shares with ranks of its host and the host's control
// page know it.
#pragma once

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "lockstep/base/per_rank.h"

namespace lockstep {

struct Member {
  int world = 0;   ///< its rank in the world
  int local = -1;  ///< its number among the group's ranks on this host, as in HostRegion; -1: on another host
  int page = -1;   ///< its number in this host's ControlPage; -1: on another host

  bool is_here() const { return local >= 0; }
};

/// The ranks of one group, as one of them sees them. A value.
class Members {
 public:
  /// A world of one.
  Members() : Members(0, PerRank<Member>{{.world = 0, .local = 0, .page = 0}}) {}
  Members(int rank, PerRank<Member> all) : rank_(rank), all_(std::move(all)) {}
  /// Of a group of these ranks of the world, `rank` being this one's number in it. `page`: of the world's
  /// ranks, -1 on other hosts. Those that are here have local numbers in the group's order.
  Members(int rank, const std::vector<int>& worlds, const PerRank<int>& page) : rank_(rank) {
    int next = 0;
    for (const int world : worlds) {
      const bool is_here = page[world] >= 0;
      all_.push_back({.world = world, .local = is_here ? next++ : -1, .page = page[world]});
    }
  }

  int rank() const { return rank_; }
  int size() const { return all_.size(); }
  const Member& self() const { return all_[rank_]; }
  const Member& operator[](int rank) const { return all_[rank]; }
  auto begin() const { return all_.begin(); }
  auto end() const { return all_.end(); }

  /// How many are on this host.
  int local_size() const {
    return static_cast<int>(std::count_if(begin(), end(), [](const Member& one) { return one.is_here(); }));
  }
  bool are_on_one_host() const { return local_size() == size(); }
  /// Their ranks in the world, in the order of the group.
  std::vector<int> worlds() const {
    std::vector<int> ranks;
    for (const Member& one : all_) ranks.push_back(one.world);
    return ranks;
  }
  /// Of those on this host, by local number.
  PerRank<int> local_worlds() const {
    PerRank<int> ranks;
    for (const Member& one : all_) {
      if (one.is_here()) ranks.push_back(one.world);
    }
    return ranks;
  }
  /// The number in the group of a rank of the world.
  std::optional<int> rank_of(int world) const {
    const int rank = all_.find_if([&](const Member& one) { return one.world == world; });
    return rank < size() ? std::optional(rank) : std::nullopt;
  }

 private:
  int rank_ = 0;
  PerRank<Member> all_;
};

}  // namespace lockstep
