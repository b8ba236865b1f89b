// The ranks' words on their way to the launcher's own stdout and stderr. Whoever reads those may be slow or
// gone, and the launcher must stay able to act: it never blocks in a write, and stops reading from the ranks
// instead. Where there is no room for the words (a full disk), they are lost, which is said, and the job goes
// on.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/launch/environment.h"
#include "lockstep/launch/output/line_prefixer.h"
#include "lockstep/launch/output/log_files.h"
#include "lockstep/launch/output/output_options.h"
#include "lockstep/launch/output/rank_pipes.h"
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

/// What ranks print, on the launcher's own stdout and stderr and in files, as OutputOptions has it.
class RankOutput final : public OutputTaker {
 public:
  static constexpr std::size_t lines_kept = 10;

  /// `run`, `restarts`: as LogFiles has them. Borrows `options`.
  RankOutput(const OutputOptions& options, std::string run, int restarts);
  /// Before the first word of these ranks, of a job of `ranks`.
  void expect(const std::vector<RankPlace>& places, int ranks);

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
  /// Of its stderr.
  std::vector<std::string> last_lines(int rank) const;
  /// The same of a rank whose output another launcher shows.
  void note_last_lines(int rank, std::vector<std::string> lines);

 private:
  Sink& err() { return *sinks_.back(); }
  Sink& sink(PrintStream stream) const {
    return stream == PrintStream::out ? *sinks_.front() : *sinks_.back();
  }
  struct Stream {
    LinePrefixer lines;
    bool is_shown = true;
    bool is_redirected = false;  // and shown only where its file fails
  };
  Stream& stream_of(int rank, PrintStream stream) {
    return streams_.at(rank)[static_cast<std::size_t>(stream)];
  }
  /// Whether the terminal gets what it prints (--local-ranks-filter).
  bool shows(const RankPlace& place) const;
  Stream new_stream(const RankPlace& place, PrintStream stream) const;
  /// Where the lines of a stream go.
  std::string& queue_for(const Stream& of, PrintStream stream, bool is_in_file);
  void say_problem_of_files();
  void write_some(Sink& sink);

  const OutputOptions& options_;
  std::vector<std::unique_ptr<Sink>> sinks_;  // of stdout and stderr; one where both are the same file
  std::map<int, std::array<Stream, print_streams>> streams_;  // by rank
  LogFiles files_;
  std::map<int, std::vector<std::string>> noted_lines_;
  std::string unseen_;  // lines that nobody wants to see
};

}  // namespace lockstep::launch
