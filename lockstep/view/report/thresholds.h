// What counts as much, and what as noise: in one place, because every verdict hangs on it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace lockstep::view {

struct Thresholds {
  /// The first steps fill caches, open connections and sort buckets: so many are left out, but no more than a quarter.
  static constexpr std::size_t warm_up_steps = 5;
  /// Of fewer steps, or meetings of ranks, nothing is concluded.
  static constexpr std::size_t fewest = 20;
  /// A step that takes more than so many medians has something else in it: an evaluation, a checkpoint.
  static constexpr double long_step = 2.0;
  /// What would win less than this share of a step (without steps: of the run) is not spoken of.
  static constexpr double matters = 0.03;
  /// A rank is late if so much of all the time by which last ones came after the others is its own: of two ranks, of more,
  static constexpr double late_of_two = 0.75, late_of_many = 0.5;
  /// if it came last in so many of the meetings at least,
  static constexpr double last_at_least = 0.1;
  /// and so much after the others that it is no chance of the clock.
  static constexpr std::uint64_t late_ns = 20'000;
  /// Its lateness is explained by a phase that takes so much of it longer than on the others.
  static constexpr double explains = 0.3;
  /// Share of the time it had work to do in which a rank had a core.
  static constexpr double has_its_core = 0.8;
  /// A busy core explains a phase that takes longer if so much of that is waiting for it.
  static constexpr double busy_core_explains = 0.5;
  /// The transfer to a rank is slow if it takes so many times that of the others.
  static constexpr double slow_link = 1.5;
  /// A connection is slow if the others carry so many times as much while they are busy; of those that carried less than
  /// this nothing is concluded.
  static constexpr double slow_connection = 2.0, least_carried_bytes = 1 << 20;
  /// A step is small if it computes for less than so many times of what its communication exposes.
  static constexpr double small_step = 2.0;
  /// Buckets come late if no more than this share of them is complete at the last gradient.
  static constexpr double buckets_late = 0.34;
  /// Two runs differ by what is more than so many standard errors, and more than this share.
  static constexpr double standard_errors = 3.0, differs = 0.02;
  /// Calls up to so many bytes carry no data to speak of.
  static constexpr std::uint64_t small_call_bytes = 64;
};

}  // namespace lockstep::view
