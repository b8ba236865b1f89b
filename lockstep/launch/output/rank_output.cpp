#include "lockstep/launch/output/rank_output.h"

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

RankOutput::RankOutput(const OutputOptions& options, std::string run, int restarts)
    : options_(options), files_(options, std::move(run), restarts) {
  sinks_.push_back(std::make_unique<Sink>(STDOUT_FILENO));
  if (!are_one_file(STDOUT_FILENO, STDERR_FILENO)) sinks_.push_back(std::make_unique<Sink>(STDERR_FILENO));
}

void RankOutput::expect(const std::vector<RankPlace>& places, int ranks) {
  for (const RankPlace& place : places) {
    streams_.emplace(place.rank,
                     std::array{new_stream(place, PrintStream::out), new_stream(place, PrintStream::err)});
    files_.make(place, ranks);
  }
  if (const std::string folder = files_.new_folder(); !folder.empty())
    say("lockstep run: what ranks print is in " + folder + "\n");
  say_problem_of_files();
  if (!places.empty() && std::ranges::none_of(places, [&](const RankPlace& place) { return shows(place); })) {
    const int last = std::ranges::max(places, {}, &RankPlace::local_rank).local_rank;
    say(
        fmt::format("lockstep run: --local-ranks-filter has none of the local ranks, which are 0 to {}: "
                    "nothing that they print is shown\n",
                    last));
  }
}

bool RankOutput::shows(const RankPlace& place) const {
  const auto& shown = options_.local_ranks_shown;
  return !shown || std::ranges::find(*shown, place.local_rank) != shown->end();
}

RankOutput::Stream RankOutput::new_stream(const RankPlace& place, PrintStream stream) const {
  const std::string prefix = options_.prefix ? fmt::format("[{}] ", place.rank) : "";
  return {.lines = LinePrefixer(prefix, stream == PrintStream::err ? lines_kept : 0),
          .is_shown = shows(place),
          .is_redirected = options_.redirected.has(place.local_rank, stream) &&
                           !options_.teed.has(place.local_rank, stream)};
}

std::string& RankOutput::queue_for(const Stream& of, PrintStream stream, bool is_in_file) {
  unseen_.clear();
  return of.is_shown && !(of.is_redirected && is_in_file) ? sink(stream).queue() : unseen_;
}

void RankOutput::take(int rank, PrintStream stream, std::string_view bytes) {
  Stream& from = stream_of(rank, stream);
  const bool is_in_file = files_.write(rank, stream, bytes);
  say_problem_of_files();
  from.lines.add(bytes, queue_for(from, stream, is_in_file));
}

void RankOutput::end(int rank, PrintStream stream) {
  Stream& from = stream_of(rank, stream);
  const bool is_in_file = files_.write(rank, stream, "");
  from.lines.finish(queue_for(from, stream, is_in_file));
}

void RankOutput::say_problem_of_files() {
  const std::string problem = files_.take_problem();
  if (!problem.empty()) say("lockstep run: " + problem + "\n");
}

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
  if (const auto noted = noted_lines_.find(rank); noted != noted_lines_.end()) return noted->second;
  const auto found = streams_.find(rank);
  return found == streams_.end() ? std::vector<std::string>() : found->second.back().lines.last_lines();
}

void RankOutput::note_last_lines(int rank, std::vector<std::string> lines) {
  lines.resize(std::min(lines.size(), lines_kept));
  noted_lines_[rank] = std::move(lines);
}

}  // namespace lockstep::launch
