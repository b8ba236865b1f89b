#include "lockstep/launch/agents/node_door.h"

#include <algorithm>
#include <utility>

namespace lockstep::launch::agents {

Destination meeting_of(const NodeOptions& nodes) {
  return {.kind = Destination::Kind::launcher, .job = nodes.id, .endpoint = nodes.meeting.to_string()};
}

NodeDoor::NodeDoor(const NodeOptions& nodes)
    : trust_{.secret = nodes.secret},
      destination_(meeting_of(nodes)),
      listener_(Listener::bind_all_addresses(nodes.meeting.port)),
      room_(trust_, destination_, {}) {}

void NodeDoor::watch(PollSet& poll) {
  poll.watch(listener_.fd(), POLLIN, [this] { somebody_knocks_ = true; });
  descriptors_.clear();
  room_.add_descriptors(descriptors_);
  for (pollfd& one : descriptors_) poll.watch(one.fd, one.events, [&one] { one.revents = one.events; });
}

std::vector<NodeDoor::Arrival> NodeDoor::take(const std::function<bool(int node_rank)>& is_taken) {
  std::vector<Arrival> arrivals;
  room_.serve(descriptors_, [&](Guest& guest) {
    const int rank = guest.claim().rank;
    const auto has_it = [&](const Arrival& other) { return other.node_rank == rank; };
    if (rank >= 0 && (is_taken(rank) || std::ranges::any_of(arrivals, has_it))) return guest.turn_away();
    guest.welcome();
    arrivals.push_back({std::move(guest.socket()), rank});
  });
  room_.drop_late();
  descriptors_.clear();
  while (std::exchange(somebody_knocks_, false) && room_.take_one(listener_)) somebody_knocks_ = true;
  return arrivals;
}

}  // namespace lockstep::launch::agents
