#include "lockstep/launch/output/rank_pipes.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "lockstep/base/error.h"
#include "lockstep/launch/limits.h"

namespace lockstep::launch {

RankPipes::RankPipes(const std::vector<int>& ranks, OutputTaker& taker) : taker_(taker) {
  for (const int rank : ranks) {
    pipes_.push_back({.rank = rank, .stream = PrintStream::out});
    pipes_.push_back({.rank = rank, .stream = PrintStream::err});
  }
}

RankPipes::Ends RankPipes::open(int local_rank) {
  const std::size_t first = static_cast<std::size_t>(local_rank) * print_streams;
  return {open(pipes_[first]), open(pipes_[first + 1])};
}

UniqueFd RankPipes::open(Pipe& pipe) {
  if (pipe.fd) {
    while (pipe.fd && read_some(pipe)) {
    }
    end(pipe);
  }
  pipe.ended = false;
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) throw_refused("making a pipe for a rank's output");
  pipe.fd.reset(ends[0]);
  UniqueFd other(ends[1]);
  if (::fcntl(ends[0], F_SETFL, O_NONBLOCK) != 0) throw_system("preparing a rank's pipe");
  return other;
}

void RankPipes::watch(PollSet& poll) {
  for (Pipe& pipe : pipes_) {
    if (taker_.reader_gone(pipe.stream)) pipe.fd.reset();
    if (pipe.fd && taker_.has_room(pipe.stream))
      poll.watch(pipe.fd.get(), POLLIN, [this, &pipe] { read_some(pipe); });
  }
}

bool RankPipes::read_some(Pipe& pipe) {
  std::array<char, 65536> buffer;
  const ssize_t got = ::read(pipe.fd.get(), buffer.data(), buffer.size());
  if (got < 0 && (errno == EINTR || errno == EAGAIN)) return errno == EINTR;
  if (got <= 0) {
    end(pipe);
    return false;
  }
  taker_.take(pipe.rank, pipe.stream, {buffer.data(), static_cast<std::size_t>(got)});
  return true;
}

void RankPipes::end(Pipe& pipe) {
  pipe.fd.reset();
  if (!pipe.ended) taker_.end(pipe.rank, pipe.stream);
  pipe.ended = true;
}

void RankPipes::finish() {
  for (Pipe& pipe : pipes_) {
    while (pipe.fd && read_some(pipe)) {
    }
    end(pipe);
  }
}

}  // namespace lockstep::launch
