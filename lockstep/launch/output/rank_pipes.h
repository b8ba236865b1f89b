// What ranks print leaves them through pipes, which are read only as far as somebody takes it: a rank that prints more
// waits, as it would before a slow terminal.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "lockstep/base/unique_fd.h"
#include "lockstep/launch/poll_set.h"

namespace lockstep::launch {

/// What a program writes to.
enum class PrintStream : std::uint8_t { out, err };
inline constexpr std::size_t print_streams = 2;

/// Gets what ranks print.
class OutputTaker {
 public:
  OutputTaker() = default;
  virtual ~OutputTaker() = default;
  OutputTaker(const OutputTaker&) = delete;
  OutputTaker& operator=(const OutputTaker&) = delete;

  virtual bool has_room(PrintStream stream) const = 0;
  /// Nobody will ever read it: a rank then gets what it would get without a launcher, SIGPIPE.
  virtual bool reader_gone(PrintStream stream) const = 0;
  /// `bytes` of world rank `rank`, cut anywhere. More than there is room for only after the rank's end.
  virtual void take(int rank, PrintStream stream, std::string_view bytes) = 0;
  /// No more will come.
  virtual void end(int rank, PrintStream stream) = 0;
};

class RankPipes {
 public:
  /// `ranks`: world ranks, in the order of local ranks. Borrows `taker`.
  RankPipes(const std::vector<int>& ranks, OutputTaker& taker);

  struct Ends {
    UniqueFd out, err;
  };
  /// What becomes a rank's stdout and stderr, of the next process where it had one: what is left of that one's words is taken.
  /// Throws Error{system}.
  Ends open(int local_rank);
  /// Says what to wait for: output, as far as there is room for it.
  void watch(PollSet& poll);
  /// After the end of all ranks: takes what is still in the pipes, at most what the system keeps in each (64 KiB).
  void finish();

 private:
  struct Pipe {
    int rank = 0;
    PrintStream stream = PrintStream::out;
    UniqueFd fd = {};
    bool ended = false;
  };

  UniqueFd open(Pipe& pipe);
  bool read_some(Pipe& pipe);  // false: nothing more for now
  void end(Pipe& pipe);

  OutputTaker& taker_;
  std::vector<Pipe> pipes_;  // stdout of local rank 0, its stderr, stdout of local rank 1, …
};

}  // namespace lockstep::launch
