#include "lockstep/launch/output.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <limits.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "lockstep/base/error.h"
#include "lockstep/launch/limits.h"

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
    streams_.push_back({UniqueFd(), LinePrefixer(text), sinks_.front().get()});
    streams_.push_back({UniqueFd(), LinePrefixer(text, lines_kept), sinks_.back().get()});
  }
}

RankOutput::RankEnds RankOutput::open(int rank) {
  const auto first = static_cast<std::size_t>(rank) * 2;
  return {open_stream(streams_[first]), open_stream(streams_[first + 1])};
}

UniqueFd RankOutput::open_stream(Stream& stream) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) throw_refused("making a pipe for a rank's output");
  stream.pipe.reset(ends[0]);
  UniqueFd other(ends[1]);
  if (::fcntl(ends[0], F_SETFL, O_NONBLOCK) != 0) throw_system("preparing a rank's pipe");
  return other;
}

void RankOutput::watch(PollSet& poll) {
  for (Stream& stream : streams_) {
    // With its reader gone a rank gets what it would get without us: SIGPIPE.
    if (stream.sink->reader_gone()) stream.pipe.reset();
    if (stream.pipe && !stream.sink->full())
      poll.watch(stream.pipe.get(), POLLIN, [&] { read_some(stream); });
  }
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

bool RankOutput::read_some(Stream& stream) {
  std::array<char, 65536> buffer;
  const ssize_t got = ::read(stream.pipe.get(), buffer.data(), buffer.size());
  if (got < 0 && (errno == EINTR || errno == EAGAIN)) return errno == EINTR;
  if (got <= 0) {
    stream.lines.finish(stream.sink->queue());
    stream.pipe.reset();
    return false;
  }
  stream.lines.add({buffer.data(), static_cast<std::size_t>(got)}, stream.sink->queue());
  return true;
}

void RankOutput::finish() {
  for (Stream& stream : streams_) {
    while (stream.pipe && read_some(stream)) {
    }
    stream.lines.finish(stream.sink->queue());
    stream.pipe.reset();
  }
}

bool RankOutput::flushed() const {
  return std::all_of(sinks_.begin(), sinks_.end(),
                     [](const auto& sink) { return sink->empty() || sink->closed(); });
}

bool RankOutput::lost() const {
  return std::any_of(sinks_.begin(), sinks_.end(), [](const auto& sink) { return sink->error() != 0; });
}

std::vector<std::string> RankOutput::last_lines(int rank) const {
  return streams_[static_cast<std::size_t>(rank) * 2 + 1].lines.last_lines();
}

}  // namespace lockstep::launch
