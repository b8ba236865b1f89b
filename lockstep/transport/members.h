// Who the ranks of a group are. A rank has a number in its group, by which all that belongs to the group calls
// it, and others by which the world, the memory that it shares with ranks of its host and the host's control
// page know it.
#pragma once

#include <algorithm>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "lockstep/base/per_rank.h"

namespace lockstep {

/// Where a rank of the world is, as one of them sees it.
struct HostPlace {
  int host = 0;   ///< the number of its host, from 0 in the order of their first ranks
  int page = -1;  ///< its number in this host's ControlPage; -1: on another host
};

struct Member {
  int world = 0;   ///< its rank in the world
  int local = -1;  ///< its number among the group's ranks on this host, as in HostRegion; -1: on another host
  int page = -1;   ///< as in HostPlace
  int host = 0;    ///< likewise

  bool is_here() const { return local >= 0; }
};

/// The ranks of one group, as one of them sees them. A value.
class Members {
 public:
  /// A world of one.
  Members() : Members(0, PerRank<Member>{{.world = 0, .local = 0, .page = 0}}) {}
  Members(int rank, PerRank<Member> all) : rank_(rank), all_(std::move(all)) {}
  /// Of a group of these ranks of the world, `rank` being this one's number in it. `places`: of the world's
  /// ranks. Those that are here have local numbers in the group's order.
  Members(int rank, const std::vector<int>& worlds, const PerRank<HostPlace>& places) : rank_(rank) {
    int next = 0;
    for (const int world : worlds) {
      const HostPlace& place = places[world];
      all_.push_back(
          {.world = world, .local = place.page >= 0 ? next++ : -1, .page = place.page, .host = place.host});
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
  /// Of each rank, the number of its host among those of the group, from 0 in the order of their first ranks.
  std::vector<int> hosts() const {
    std::map<int, int> numbers;
    std::vector<int> hosts;
    for (const Member& one : all_)
      hosts.push_back(numbers.emplace(one.host, static_cast<int>(numbers.size())).first->second);
    return hosts;
  }
  /// Those on this host, by local number.
  std::vector<int> here() const {
    std::vector<int> ranks;
    for (int rank = 0; rank < size(); ++rank) {
      if (all_[rank].is_here()) ranks.push_back(rank);
    }
    std::ranges::sort(ranks, {}, [this](int rank) { return all_[rank].local; });
    return ranks;
  }
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
