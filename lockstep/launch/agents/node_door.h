// Where the launchers of other hosts come in that were started there by somebody else (NodeOptions).
#pragma once

#include <poll.h>

#include <functional>
#include <vector>

#include "lockstep/base/proof.h"
#include "lockstep/base/socket.h"
#include "lockstep/launch/poll_set.h"
#include "lockstep/launch/run.h"
#include "lockstep/transport/guest_room.h"

namespace lockstep::launch::agents {

/// What both sides prove that they mean.
Destination meeting_of(const NodeOptions& nodes);

class NodeDoor {
 public:
  struct Arrival {
    Socket socket;
    int node_rank = -1;  ///< -1: it does not say
  };

  /// Listens at the meeting's port on all addresses. Throws Error{system} where it is taken.
  explicit NodeDoor(const NodeOptions& nodes);

  /// Says what to wait for.
  void watch(PollSet& poll);
  Deadline wake_at() const { return room_.next_deadline(); }
  /// Who has come since the last call, and knows the secret. One whose number `is_taken` is turned away.
  std::vector<Arrival> take(const std::function<bool(int node_rank)>& is_taken);

 private:
  const Trust trust_;
  const Destination destination_;
  Listener listener_;
  GuestRoom room_;
  std::vector<pollfd> descriptors_;
  bool somebody_knocks_ = false;
};

}  // namespace lockstep::launch::agents
