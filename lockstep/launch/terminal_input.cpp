#include "lockstep/launch/terminal_input.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "lockstep/base/error.h"
#include "lockstep/launch/limits.h"

namespace lockstep::launch {

UniqueFd TerminalInput::open(int terminal) {
  if (::isatty(terminal) == 0) return {};
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) throw_refused("making a pipe for rank 0's input");
  UniqueFd of_rank(ends[0]);
  pipe_.reset(ends[1]);
  if (::fcntl(pipe_.get(), F_SETFL, O_NONBLOCK) != 0) throw_system("preparing rank 0's input");
  terminal_ = terminal;
  return of_rank;
}

void TerminalInput::watch(PollSet& poll) {
  if (!pipe_) return;
  if (!typed_.empty()) {
    poll.watch(pipe_.get(), POLLOUT, [this] { write_some(); });
  } else if (ended_) {
    pipe_.reset();
  } else if (::tcgetpgrp(terminal_) == ::getpgrp()) {
    poll.watch(terminal_, POLLIN, [this] { read_some(); });
  }
}

void TerminalInput::read_some() {
  std::array<char, 4096> buffer;
  const ssize_t got = ::read(terminal_, buffer.data(), buffer.size());
  if (got > 0) typed_.assign(buffer.data(), static_cast<std::size_t>(got));
  if (got == 0 || (got < 0 && errno != EINTR && errno != EAGAIN)) ended_ = true;
}

void TerminalInput::write_some() {
  const ssize_t written = ::write(pipe_.get(), typed_.data(), typed_.size());
  if (written > 0) typed_.erase(0, static_cast<std::size_t>(written));
  if (written < 0 && errno != EINTR && errno != EAGAIN) {  // rank 0 has closed its stdin or is gone
    typed_.clear();
    ended_ = true;
  }
}

}  // namespace lockstep::launch
