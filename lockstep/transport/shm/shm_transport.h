// Ranks that are processes of one host: how they come to share memory, and how they notice that one of them
// died.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "lockstep/base/deadline.h"
#include "lockstep/base/secret.h"
#include "lockstep/base/socket.h"
#include "lockstep/memory/host_region.h"

namespace lockstep {

/// A rank that waits for one which may itself wait for another does so for a little longer than that one: who
/// is late is then said by a rank that knows.
inline constexpr std::chrono::milliseconds others_speak_first{300};

struct Meeting {
  Endpoint endpoint;  ///< an abstract unix socket that only this group on this host uses
  int local_rank = 0;
  int local_ranks = 1;
  Trust trust;
  Deadline deadline = Deadline::never();
  std::vector<int> world_ranks = {};    ///< by local rank: how messages call them; none: as local_rank
  std::function<void()> check = [] {};  ///< called now and then in a wait: throws if it is in vain

  int world_rank(std::size_t local) const {
    return world_ranks.empty() ? static_cast<int>(local) : world_ranks.at(local);
  }
};

/// The host's first rank gives its descriptors to all others: that they get through an abstract unix socket
/// proves that they are on one host. Returns them, in order; empty on the first rank, which keeps its own.
/// Every connection is proven first (base/secret.h); whatever else than a rank of this group connects is
/// turned away and holds nobody up. Throws timeout saying which ranks of the host never came, and
/// peer_lost naming the first rank when it ended early or turned this one away.
std::vector<UniqueFd> hand_over(const Meeting& meeting, std::span<const int> offered, std::size_t count);

/// Marks this process as present and tells whether others are. The mark is a lock on one byte of the region's
/// file, which the kernel drops with the process, however it ends; it needs no process ids, so containers may
/// differ. REQUIRES: all ranks have called it before any of them asks.
std::function<bool(int)> watch_presence(std::shared_ptr<HostRegion> region, int local_rank);

}  // namespace lockstep
