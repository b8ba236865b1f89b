#include "lockstep/transport/ring/hand_over.h"

#include <poll.h>

#include <array>
#include <cerrno>
#include <span>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/base/words.h"
#include "lockstep/transport/guest_room.h"

namespace lockstep {
namespace {

Destination destination_of(const Meeting& meeting) {
  return {.kind = Destination::Kind::region,
          .job = meeting.job,
          .group = meeting.group,
          .rank = meeting.world_rank(0),
          .endpoint = meeting.endpoint.to_string()};
}

/// By local number, and among how many.
Claim claim_of(const Meeting& meeting) {
  return {.rank = meeting.local_rank, .use = static_cast<std::uint32_t>(meeting.local_ranks)};
}

// Ranks come in any order and at any pace, and so may strangers: nobody is waited for alone.
constexpr std::size_t room_for_strangers = 64;
constexpr std::chrono::milliseconds check_every(250);
constexpr std::chrono::milliseconds check_again_after(10);
constexpr std::chrono::nanoseconds patience = std::chrono::seconds(5);  // with one that says nothing

class Giver {
 public:
  Giver(const Meeting& meeting, std::span<const int> offered)
      : meeting_(meeting),
        offered_(offered),
        destination_(destination_of(meeting)),
        listener_(Listener::bind(meeting.endpoint)),
        served_(meeting.local_ranks, false),
        missing_(meeting.local_ranks - 1),
        guests_(meeting.trust, destination_,
                {.most = 2 * (room_for_strangers + static_cast<std::size_t>(meeting.local_ranks)),
                 .patience = patience}) {}

  void give_to_all() {
    while (missing_ > 0) {
      if (meeting_.deadline.expired()) throw_missing();
      turn();
    }
  }

 private:
  void turn();
  void give(Guest& guest);
  [[noreturn]] void throw_missing() const;
  const Meeting& meeting_;
  const std::span<const int> offered_;
  const Destination destination_;
  Listener listener_;
  PerRank<bool> served_;  // by local rank
  int missing_;
  GuestRoom guests_;
};

void Giver::throw_missing() const {
  std::vector<int> missing;
  for (int local = 1; local < served_.size(); ++local) {
    if (!served_[local]) missing.push_back(meeting_.world_rank(local));
  }
  throw Error(ErrorCode::timeout,
              base::name_ranks(missing) + " of this host did not come to share memory at " +
                  meeting_.endpoint.to_string() + " before the deadline",
              missing.size() == 1 ? std::optional(missing.front()) : std::nullopt);
}

void Giver::turn() {
  std::vector<pollfd> descriptors{{.fd = listener_.fd(), .events = POLLIN, .revents = 0}};
  guests_.add_descriptors(descriptors);
  const Deadline until = meeting_.deadline.earlier_of(guests_.next_deadline());
  const int ready = ::poll(descriptors.data(), descriptors.size(), until.poll_milliseconds(check_every));
  if (ready < 0 && errno != EINTR) throw_system("poll");
  if (ready == 0) meeting_.check();
  guests_.serve(std::span(descriptors).subspan(1), [this](Guest& guest) { give(guest); });
  guests_.drop_late();
  if (descriptors[0].revents != 0) (void)guests_.take_one(listener_);
}

void Giver::give(Guest& guest) {
  const Claim& claim = guest.claim();
  const bool fits = claim.use == static_cast<std::uint32_t>(meeting_.local_ranks) && claim.rank > 0 &&
                    claim.rank < meeting_.local_ranks && !served_[claim.rank];
  if (!fits) {
    guest.turn_away();
    return log::warning(guest.socket().peer() + " is turned away: it is no rank of the group that meets at " +
                        meeting_.endpoint.to_string());
  }
  guest.welcome();
  const Deadline deadline = Deadline::after(patience).earlier_of(meeting_.deadline);
  for (const int fd : offered_) guest.socket().send_fd(fd, std::byte{1}, deadline);
  served_[claim.rank] = true;
  --missing_;
}

Socket connect_to_giver(const Meeting& meeting) {
  const Deadline deadline = meeting.deadline.later_by(others_speak_first);
  for (;;) {
    try {
      return Socket::connect(meeting.endpoint, deadline.earlier_of(Deadline::after(check_every)));
    } catch (const Error& error) {
      if (error.code() != ErrorCode::timeout) throw;
      meeting.check();
      if (!deadline.expired()) continue;
      throw Error(ErrorCode::timeout,
                  "rank " + std::to_string(meeting.world_rank(0)) +
                      ", which hands out this host's shared memory, was not at " +
                      meeting.endpoint.to_string() + " before the deadline",
                  meeting.world_rank(0));
    }
  }
}

/// Whoever has the name may not be the first rank, which knows that and has said so.
void await_greeting(const Socket& socket, const Meeting& meeting) {
  pollfd descriptor{.fd = socket.fd(), .events = POLLIN, .revents = 0};
  while (!meeting.deadline.expired()) {
    if (::poll(&descriptor, 1, meeting.deadline.poll_milliseconds(check_every)) > 0) return;
    meeting.check();
  }
}

std::vector<UniqueFd> take_from_giver(const Meeting& meeting, std::size_t count) {
  Socket socket = connect_to_giver(meeting);
  await_greeting(socket, meeting);
  prove_as_client(socket, meeting.trust, destination_of(meeting), claim_of(meeting), meeting.deadline);
  std::vector<UniqueFd> received;
  for (std::size_t index = 0; index < count; ++index)
    received.push_back(socket.receive_fd(meeting.deadline).fd);
  return received;
}

/// As `error`, which the connection to the first rank ended with, but naming that rank.
[[noreturn]] void throw_about_giver(const Meeting& meeting, const Error& error) {
  const int giver = meeting.world_rank(0);
  const std::string it = "rank " + std::to_string(giver) + ", which hands out this host's shared memory, ";
  if (error.code() == ErrorCode::timeout) {
    throw Error(ErrorCode::timeout, it + "did not do so before the deadline: " + error.what(), giver);
  }
  // It may have given up because of another rank, or may still say why: in the store, which tells only who
  // asks.
  const Deadline said_by = Deadline::after(others_speak_first);
  do {
    meeting.check();
    std::this_thread::sleep_for(check_again_after);
  } while (!said_by.expired());
  throw Error(
      ErrorCode::peer_lost,
      it + "ended before that, or turned this rank away; look at what it printed last (" + error.what() + ")",
      giver);
}

}  // namespace

std::vector<UniqueFd> hand_over(const Meeting& meeting, std::span<const int> offered, std::size_t count) {
  if (meeting.local_rank == 0) {
    if (meeting.local_ranks > 1) Giver(meeting, offered).give_to_all();
    return {};
  }
  try {
    return take_from_giver(meeting, count);
  } catch (const Error& error) {
    const bool names_nobody = !error.peer();
    if (names_nobody && (error.code() == ErrorCode::timeout || error.code() == ErrorCode::peer_lost))
      throw_about_giver(meeting, error);
    throw;
  }
}

}  // namespace lockstep
