#include "lockstep/launch/agents/rank_input.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/launch/limits.h"

namespace lockstep::launch::agents {

UniqueFd RankInput::open() {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) throw_refused("making a pipe for rank 0's input");
  UniqueFd of_rank(ends[0]);
  pipe_.reset(ends[1]);
  if (::fcntl(pipe_.get(), F_SETFL, O_NONBLOCK) != 0) throw_system("preparing rank 0's input");
  return of_rank;
}

void RankInput::add(const std::string& bytes) {
  if (bytes.empty()) ended_ = true;
  if (pipe_) queue_ += bytes;
  if (!pipe_) room_ += bytes.size();
  if (ended_ && queue_.empty()) pipe_.reset();
}

void RankInput::watch(PollSet& poll) {
  if (pipe_ && !queue_.empty()) poll.watch(pipe_.get(), POLLOUT, [this] { write_some(); });
}

void RankInput::write_some() {
  const ssize_t written = ::write(pipe_.get(), queue_.data(), queue_.size());
  if (written < 0 && (errno == EINTR || errno == EAGAIN)) return;
  const std::size_t gone = written < 0 ? queue_.size() : static_cast<std::size_t>(written);
  queue_.erase(0, gone);
  room_ += gone;
  if (written < 0 || (ended_ && queue_.empty())) pipe_.reset();  // rank 0 has closed its stdin, or is gone
}

std::size_t RankInput::take_room() { return std::exchange(room_, 0); }

}  // namespace lockstep::launch::agents
