// How ranks that are processes of one host come to share memory: the first gives its descriptors to the others.
#pragma once

#include <chrono>
#include <functional>
#include <span>
#include <vector>

#include "lockstep/base/deadline.h"
#include "lockstep/base/per_rank.h"
#include "lockstep/base/proof.h"
#include "lockstep/base/socket.h"
#include "lockstep/base/unique_fd.h"

namespace lockstep {

/// A rank that waits for one which may itself wait for another does so for a little longer than that one: who
/// is late is then said by a rank that knows.
inline constexpr std::chrono::milliseconds others_speak_first{300};

struct Meeting {
  Endpoint endpoint;  ///< an abstract unix socket that only this group on this host uses
  std::string job = {};
  std::string group = {};
  int local_rank = 0;
  int local_ranks = 1;
  Trust trust;
  Deadline deadline = Deadline::never();
  PerRank<int> world_ranks = {};        ///< by local rank: how messages call them; none: as local_rank
  std::function<void()> check = [] {};  ///< called now and then in a wait: throws if it is in vain

  int world_rank(int local) const { return world_ranks.empty() ? local : world_ranks[local]; }
};

/// The host's first rank gives its descriptors to all others: that they get through an abstract unix socket
/// proves that they are on one host. Returns them, in order; empty on the first rank, which keeps its own.
/// Every connection is proven first (base/proof.h); whatever else than a rank of this group connects is
/// turned away and holds nobody up. Throws timeout saying which ranks of the host never came, and
/// peer_lost naming the first rank when it ended early or turned this one away.
std::vector<UniqueFd> hand_over(const Meeting& meeting, std::span<const int> offered, std::size_t count);

}  // namespace lockstep
