// The ranks' words on their way to the launcher's own stdout and stderr. Whoever reads those may be slow or
// gone, and the launcher must stay able to act: it never blocks in a write, and stops reading from the ranks
// instead. Where there is no room for the words (a full disk), they are lost, which is said, and the job goes
// on.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/launch/line_prefixer.h"
#include "lockstep/launch/poll_set.h"
#include "lockstep/launch/rank_pipes.h"

namespace lockstep::launch {

/// Text waiting to be written to a descriptor that belongs to others as well (so it stays blocking).
class Sink {
 public:
  /// Borrows `fd`.
  explicit Sink(int fd) : fd_(fd) {}

  /// Append here.
  std::string& queue() { return queue_; }
  bool empty() const { return queue_.size() == written_; }
  bool full() const { return queue_.size() - written_ >= full_bytes; }
  /// Its reader is gone.
  bool reader_gone() const { return reader_gone_; }
  /// errno of a write that failed for any other reason, or 0.
  int error() const { return error_; }
  /// Nobody reads, or a write failed: what is queued from now on is to be dropped.
  bool closed() const { return reader_gone_ || error_ != 0; }
  int fd() const { return fd_; }
  /// As much as goes without blocking. REQUIRES: poll(2) said that the descriptor is writable.
  void write_some();
  void drop();

 private:
  static constexpr std::size_t full_bytes = std::size_t{1} << 20;
  int fd_;
  std::string queue_;
  std::size_t written_ = 0;  // of queue_
  bool reader_gone_ = false;
  int error_ = 0;
};

/// What all ranks print, on the launcher's own stdout and stderr.
class RankOutput final : public OutputTaker {
 public:
  static constexpr std::size_t lines_kept = 10;

  /// `prefix`: "[rank] " before each line.
  RankOutput(int ranks, bool prefix);

  bool has_room(PrintStream stream) const override { return !sink(stream).full(); }
  bool reader_gone(PrintStream stream) const override { return sink(stream).reader_gone(); }
  void take(int rank, PrintStream stream, std::string_view bytes) override;
  /// Completes an unfinished line.
  void end(int rank, PrintStream stream) override;

  /// Says what to wait for: room where there is output.
  void watch(PollSet& poll);

  /// A line of the launcher's own, among the others on stderr.
  void say(const std::string& text) { err().queue() += text; }
  bool flushed() const;
  /// Some of it could not be written, though there was somebody to read it.
  bool lost() const;
  std::vector<std::string> last_lines(int rank) const;

 private:
  Sink& err() { return *sinks_.back(); }
  Sink& sink(PrintStream stream) const {
    return stream == PrintStream::out ? *sinks_.front() : *sinks_.back();
  }
  LinePrefixer& lines(int rank, PrintStream stream) {
    return lines_[static_cast<std::size_t>(rank) * print_streams + static_cast<std::size_t>(stream)];
  }
  void write_some(Sink& sink);

  std::vector<std::unique_ptr<Sink>> sinks_;  // of stdout and stderr; one where both are the same file
  std::vector<LinePrefixer> lines_;           // stdout of rank 0, its stderr, stdout of rank 1, …
};

}  // namespace lockstep::launch
