#include "lockstep/transport/shm/shm_transport.h"

#include <fcntl.h>

#include <cstring>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

struct Hello {
  std::uint32_t magic;
  std::int32_t local_rank;
  std::int32_t local_ranks;
};
constexpr std::uint32_t hello_magic = 0x31486b4cU;  // "LkH1"

void give_to(Socket& socket, const Meeting& meeting, std::span<const int> offered,
             std::vector<bool>& served) {
  prove_as_server(socket, meeting.trust, meeting.deadline);
  Hello hello{};
  socket.receive_all(std::as_writable_bytes(std::span(&hello, 1)), meeting.deadline);
  const bool fits = hello.magic == hello_magic && hello.local_ranks == meeting.local_ranks &&
                    hello.local_rank > 0 && hello.local_rank < meeting.local_ranks &&
                    !served[static_cast<std::size_t>(hello.local_rank)];
  if (!fits)
    throw Error(ErrorCode::corrupt_data,
                "what connected to " + meeting.endpoint.to_string() + " is no rank of this group");
  for (const int fd : offered) socket.send_fd(fd, std::byte{1}, meeting.deadline);
  served[static_cast<std::size_t>(hello.local_rank)] = true;
}

void give_to_all(const Meeting& meeting, std::span<const int> offered) {
  Listener listener = Listener::bind(meeting.endpoint);
  std::vector<bool> served(static_cast<std::size_t>(meeting.local_ranks));
  for (int missing = meeting.local_ranks - 1; missing > 0; --missing) {
    try {
      Socket socket = listener.accept(meeting.deadline);
      give_to(socket, meeting, offered, served);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::timeout) throw;
      throw Error(ErrorCode::timeout,
                  std::to_string(missing) + " of " + std::to_string(meeting.local_ranks) +
                      " ranks of this host did not come to share memory: " + error.what());
    }
  }
}

}  // namespace

std::vector<UniqueFd> hand_over(const Meeting& meeting, std::span<const int> offered, std::size_t count) {
  std::vector<UniqueFd> received;
  if (meeting.local_rank == 0) {
    if (meeting.local_ranks > 1) give_to_all(meeting, offered);
    return received;
  }
  Socket socket = Socket::connect(meeting.endpoint, meeting.deadline);
  prove_as_client(socket, meeting.trust, meeting.deadline);
  const Hello hello{hello_magic, meeting.local_rank, meeting.local_ranks};
  socket.send_all(std::as_bytes(std::span(&hello, 1)), meeting.deadline);
  for (std::size_t index = 0; index < count; ++index) {
    received.push_back(socket.receive_fd(meeting.deadline).fd);
  }
  return received;
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
