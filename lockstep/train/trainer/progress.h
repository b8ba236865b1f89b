// Who trains wants to see that it goes on, and when it will be done. A terminal gets one line that is written
// again and again; a file or a pipe gets lines, few enough to be read.
//
//   epoch  3/20 [=========>          ]  45 %  1234 images/s  loss 0.1234  0:12 left
#pragma once

#include <chrono>
#include <cstdint>
#include <iosfwd>
#include <string>

#include "lockstep/group/group.h"
#include "lockstep/train/trainer/history.h"

namespace lockstep {

struct ProgressOptions {
  std::ostream* out = nullptr;  ///< borrowed; null: standard output
  /// One line that is rewritten, or lines. Asked of the system where `out` is null.
  bool is_terminal = false;
  /// A rewritten line is no longer than this. Asked of the system where `out` is null.
  int columns = 80;
  std::chrono::milliseconds rewritten_every{100};
  std::chrono::milliseconds line_every{30'000};
};

/// Rank 0 writes; on other ranks everything returns without doing anything. Times are handed in, and never go
/// back. Thread safety: none.
class TrainingProgress {
 public:
  using Time = std::chrono::steady_clock::time_point;

  explicit TrainingProgress(const Group& group, const ProgressOptions& options = {});

  /// Epoch number `epoch`, counted from 0, of `epochs` begins. `steps`: how many it will have; 0 where nobody
  /// knows, then there is neither bar nor time left.
  void begin(std::uint64_t epoch, std::uint64_t epochs, std::uint64_t steps, Time now);
  /// One more step is over. `images`: this rank's, of which each rank is taken to have as many. `loss`: of
  /// this step, on rank 0.
  void step(std::uint64_t images, double loss, Time now);
  /// The epoch is over: a line that stays. What was not measured is left out.
  void end(const EpochResult& result, Time now);
  /// A line of its own, such as that a run was stopped.
  void say(const std::string& line);

 private:
  std::string bar() const;
  std::string line(Time now) const;
  void write_line(const std::string& text);

  ProgressOptions options_;
  int ranks_;
  bool is_open_ = false;  // a line that will be rewritten stands there
  std::uint64_t epoch_ = 0, epochs_ = 0, steps_ = 0;
  std::uint64_t done_ = 0, images_ = 0;
  double loss_ = 0;
  Time begin_, last_;
};

}  // namespace lockstep
