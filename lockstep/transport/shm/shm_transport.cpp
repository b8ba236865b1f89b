#include "lockstep/transport/shm/shm_transport.h"

#include <fcntl.h>
#include <poll.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/transport/guest.h"

namespace lockstep {
namespace {

struct Hello {
  std::uint32_t magic;
  std::int32_t local_rank;
  std::int32_t local_ranks;
};
constexpr std::uint32_t hello_magic = 0x31486b4cU;  // "LkH1"

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
        listener_(Listener::bind(meeting.endpoint)),
        served_(static_cast<std::size_t>(meeting.local_ranks)),
        missing_(meeting.local_ranks - 1) {}

  void give_to_all() {
    while (missing_ > 0) {
      if (meeting_.deadline.expired()) throw_missing();
      turn();
    }
  }

 private:
  void turn();
  void accept();
  bool serve(Guest& guest);
  void give(Guest& guest, const Hello& hello);
  [[noreturn]] void throw_missing() const;
  bool is_full() const { return guests_.size() >= served_.size() + room_for_strangers; }
  Deadline patience_ends() const {
    if (guests_.empty()) return Deadline::never();
    return Deadline::at(guests_.front()->since() + (is_full() ? patience / 10 : patience));
  }

  const Meeting& meeting_;
  const std::span<const int> offered_;
  Listener listener_;
  std::vector<bool> served_;
  int missing_;
  std::vector<std::unique_ptr<Guest>> guests_;  // oldest first
};

void Giver::throw_missing() const {
  std::string list;
  for (std::size_t local = 1; local < served_.size(); ++local) {
    if (!served_[local]) list += (list.empty() ? "" : ", ") + std::to_string(meeting_.world_rank(local));
  }
  throw Error(ErrorCode::timeout,
              (missing_ == 1 ? "rank " : "ranks ") + list + " of this host did not come to share memory at " +
                  meeting_.endpoint.to_string() + " before the deadline",
              missing_ == 1 ? std::optional(std::stoi(list)) : std::nullopt);
}

void Giver::turn() {
  std::vector<pollfd> descriptors{{.fd = is_full() ? -1 : listener_.fd(), .events = POLLIN, .revents = 0}};
  for (const auto& guest : guests_)
    descriptors.push_back({.fd = guest->socket().fd(), .events = POLLIN, .revents = 0});
  const Deadline until = meeting_.deadline.earlier_of(patience_ends());
  const int ready = ::poll(descriptors.data(), descriptors.size(), until.poll_milliseconds(check_every));
  if (ready < 0 && errno != EINTR) throw_system("poll");
  if (ready == 0) meeting_.check();
  for (std::size_t index = guests_.size(); index-- > 0;) {
    if (descriptors[index + 1].revents == 0 || serve(*guests_[index])) continue;
    guests_.erase(guests_.begin() + static_cast<std::ptrdiff_t>(index));
  }
  if (patience_ends().expired()) guests_.erase(guests_.begin());
  if (descriptors[0].revents != 0) accept();
}

void Giver::accept() {
  auto socket = listener_.try_accept();
  if (!socket) return;
  try {
    guests_.push_back(std::make_unique<Guest>(std::move(*socket), meeting_.trust));
  } catch (const Error& error) {
    log::debug("a connection was dropped: " + std::string(error.what()));
  }
}

// False: done with, one way or the other.
bool Giver::serve(Guest& guest) {
  try {
    if (!guest.is_proven()) {
      if (guest.prove()) guest.welcome();
      return true;
    }
    const auto hello = guest.hello<Hello>();
    if (!hello) return true;
    give(guest, *hello);
  } catch (const Error& error) {
    log::debug("a connection was dropped: " + std::string(error.what()));
  }
  return false;
}

void Giver::give(Guest& guest, const Hello& hello) {
  const bool fits = hello.magic == hello_magic && hello.local_ranks == meeting_.local_ranks &&
                    hello.local_rank > 0 && hello.local_rank < meeting_.local_ranks &&
                    !served_[static_cast<std::size_t>(hello.local_rank)];
  if (!fits) {
    return log::warning(guest.socket().peer() + " is turned away: it is no rank of the group that meets at " +
                        meeting_.endpoint.to_string());
  }
  const Deadline deadline = Deadline::after(patience).earlier_of(meeting_.deadline);
  for (const int fd : offered_) guest.socket().send_fd(fd, std::byte{1}, deadline);
  served_[static_cast<std::size_t>(hello.local_rank)] = true;
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

std::vector<UniqueFd> take_from_giver(const Meeting& meeting, std::size_t count) {
  Socket socket = connect_to_giver(meeting);
  prove_as_client(socket, meeting.trust, meeting.deadline);
  const Hello hello{hello_magic, meeting.local_rank, meeting.local_ranks};
  socket.send_all(std::as_bytes(std::span(&hello, 1)), meeting.deadline);
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

namespace {

struct flock byte_lock(short type, int local_rank) {
  struct flock lock {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = local_rank;
  lock.l_len = 1;
  return lock;
}

}  // namespace

std::function<bool(int)> watch_presence(std::shared_ptr<HostRegion> region, int local_rank) {
  struct flock mark = byte_lock(F_WRLCK, local_rank);
  if (::fcntl(region->fd(), F_SETLK, &mark) != 0) throw_system("marking this process as present");
  return [region = std::move(region)](int other) {
    struct flock question = byte_lock(F_WRLCK, other);
    if (::fcntl(region->fd(), F_GETLK, &question) != 0) return true;  // cannot tell
    return question.l_type != F_UNLCK;
  };
}

}  // namespace lockstep
