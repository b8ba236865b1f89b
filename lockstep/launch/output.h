// The ranks' words on their way to the launcher's own stdout and stderr. Whoever reads those may be slow or
// gone, and the launcher must stay able to act: it never blocks in a write, and stops reading from the ranks
// instead. Where there is no room for the words (a full disk), they are lost, which is said, and the job goes
// on.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/base/unique_fd.h"
#include "lockstep/launch/line_prefixer.h"
#include "lockstep/launch/poll_set.h"

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

class RankOutput {
 public:
  static constexpr std::size_t lines_kept = 10;

  /// `prefix`: "[rank] " before each line.
  RankOutput(int ranks, bool prefix);

  struct RankEnds {
    UniqueFd out, err;
  };
  /// What becomes the rank's stdout and stderr. Once for each rank.
  RankEnds open(int rank);

  /// Says what to wait for: the ranks' output as far as there is room, and room where there is output.
  void watch(PollSet& poll);
  /// After the last rank: takes what is still in the pipes, and completes unfinished lines.
  void finish();

  /// A line of the launcher's own, among the others on stderr.
  void say(const std::string& text) { err().queue() += text; }
  bool flushed() const;
  /// Some of it could not be written, though there was somebody to read it.
  bool lost() const;
  std::vector<std::string> last_lines(int rank) const;

 private:
  struct Stream {
    UniqueFd pipe;
    LinePrefixer lines;
    Sink* sink;
  };

  Sink& err() { return *sinks_.back(); }
  UniqueFd open_stream(Stream& stream);
  void write_some(Sink& sink);
  bool read_some(Stream& stream);  // false: nothing more for now

  std::vector<std::unique_ptr<Sink>> sinks_;  // of stdout and stderr; one where both are the same file
  std::vector<Stream> streams_;               // stdout of rank 0, its stderr, stdout of rank 1, …
};

}  // namespace lockstep::launch
