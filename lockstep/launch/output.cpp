#include "lockstep/launch/output.h"

#include <fmt/core.h>
#include <limits.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

namespace lockstep::launch {
namespace {

bool are_one_file(int a, int b) {
  struct stat of_a {};
  struct stat of_b {};
  if (::fstat(a, &of_a) != 0 || ::fstat(b, &of_b) != 0) return false;
  return of_a.st_dev == of_b.st_dev && of_a.st_ino == of_b.st_ino;
}

}  // namespace

void Sink::write_some() {
  // What poll(2) calls writable has room for this much at least.
  const ssize_t written =
      ::write(fd_, queue_.data() + written_, std::min<std::size_t>(queue_.size() - written_, PIPE_BUF));
  if (written < 0) {
    if (errno == EINTR || errno == EAGAIN) return;
    if (errno == EPIPE || errno == ECONNRESET) {
      reader_gone_ = true;
    } else {
      error_ = errno;
    }
    drop();
    return;
  }
  written_ += static_cast<std::size_t>(written);
  if (written_ * 2 >= queue_.size()) {
    queue_.erase(0, written_);
    written_ = 0;
  }
}

void Sink::drop() {
  queue_.clear();
  written_ = 0;
}

RankOutput::RankOutput(int ranks, bool prefix) {
  sinks_.push_back(std::make_unique<Sink>(STDOUT_FILENO));
  if (!are_one_file(STDOUT_FILENO, STDERR_FILENO)) sinks_.push_back(std::make_unique<Sink>(STDERR_FILENO));
  for (int rank = 0; rank < ranks; ++rank) {
    const std::string text = prefix ? fmt::format("[{}] ", rank) : "";
    lines_.emplace_back(text);
    lines_.emplace_back(text, lines_kept);
  }
}

void RankOutput::take(int rank, PrintStream stream, std::string_view bytes) {
  lines(rank, stream).add(bytes, sink(stream).queue());
}

void RankOutput::end(int rank, PrintStream stream) { lines(rank, stream).finish(sink(stream).queue()); }

void RankOutput::watch(PollSet& poll) {
  for (const auto& sink : sinks_) {
    if (sink->closed()) sink->drop();
    if (!sink->empty()) poll.watch(sink->fd(), POLLOUT, [this, &sink] { write_some(*sink); });
  }
}

void RankOutput::write_some(Sink& sink) {
  sink.write_some();
  if (sink.error() == 0 || &sink == &err()) return;  // where stderr itself fails, nobody can be told
  say(fmt::format("lockstep run: cannot write to stdout: {}; the ranks' output from here on is lost\n",
                  std::generic_category().message(sink.error())));
}

bool RankOutput::flushed() const {
  return std::all_of(sinks_.begin(), sinks_.end(),
                     [](const auto& sink) { return sink->empty() || sink->closed(); });
}

bool RankOutput::lost() const {
  return std::any_of(sinks_.begin(), sinks_.end(), [](const auto& sink) { return sink->error() != 0; });
}

std::vector<std::string> RankOutput::last_lines(int rank) const {
  return lines_[static_cast<std::size_t>(rank) * print_streams + 1].last_lines();
}

}  // namespace lockstep::launch
