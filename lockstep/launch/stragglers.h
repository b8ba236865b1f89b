// Ranks end one by one, and the launcher waits for the last. One may work on alone: it saves the model, say.
// But one that was stopped (SIGSTOP) never ends by itself, and no rank's time-out names it, because nobody
// waits for it any more: whoever started the job would see nothing, for ever.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/base/deadline.h"

namespace lockstep::launch {

struct StragglerLimits {
  /// A rank that runs on so long after another has ended is named.
  std::chrono::nanoseconds runs_on = std::chrono::seconds(30);
  /// So is one that is stopped so long, when another has ended.
  std::chrono::nanoseconds is_stopped = std::chrono::seconds(3);
  /// The job is ended when all ranks that are left are stopped so long.
  std::chrono::nanoseconds given_up = std::chrono::minutes(10);
  /// From one look at the ranks to the next.
  std::chrono::nanoseconds between_looks = std::chrono::seconds(1);

  /// With LOCKSTEP_WARN_AFTER as the first and LOCKSTEP_TIMEOUT as the third. Throws invalid_argument.
  static StragglerLimits from_environment();
};

/// A rank that has not ended.
struct Straggler {
  int rank = 0;
  pid_t pid = 0;
  bool is_stopped = false;
};

/// What is to be said of ranks that are left. Not thread safe.
class Stragglers {
 public:
  using Time = Deadline::Clock::time_point;

  explicit Stragglers(const StragglerLimits& limits) : limits_(limits) {}

  /// A look at the ranks that are `left` when some have `ended`, all with 0. Lines for the user, none twice;
  /// empty if there is nothing new.
  std::string look(std::span<const int> ended, std::span<const Straggler> left,
                   Time now = Deadline::Clock::now());

  struct GivenUp {
    Straggler who;                   ///< was stopped first
    std::chrono::nanoseconds since;  ///< how long ago that was seen
  };
  /// Says so when, at the last look, all that were left had been stopped too long.
  std::optional<GivenUp> given_up() const { return given_up_; }

  /// The user has stopped the whole job, or lets it go on: time counts anew.
  void forget();

 private:
  struct Stopped {
    Time seen;
    bool is_told = false;
  };
  std::string tell_stopped(const Straggler& one, std::span<const int> ended, Time now);

  StragglerLimits limits_;
  std::size_t ended_ = 0;
  Time last_end_;
  bool are_told_ = false;  // those that run on
  std::map<int, Stopped> stopped_;
  std::optional<GivenUp> given_up_;
};

}  // namespace lockstep::launch
