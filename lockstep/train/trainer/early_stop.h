// A training that no longer gets better only costs time, and one rank that ends alone leaves the others
// waiting. So all ranks stop together, some epochs after the best one.
#pragma once

#include <limits>

#include "lockstep/group/group.h"

namespace lockstep {

struct EarlyStopOptions {
  int patience = 5;      ///< stop after so many values in a row that were no better than the best
  double min_delta = 0;  ///< a value is better if it is smaller than the best by more than this
};

/// Of values that shall become small: a loss; for an accuracy pass it negated.
class EarlyStop {
 public:
  /// Throws Error{invalid_argument} for a patience below 1, or a min_delta that is negative or no number.
  explicit EarlyStop(const EarlyStopOptions& options = {});

  /// Collective. Takes the next value, of which rank 0's counts, so that all ranks return the same; true:
  /// stop. A value that is no number is not better than another. Cost: one broadcast of 8 bytes.
  bool should_stop(const Group& group, double value);
  /// What the last should_stop() returned.
  bool is_over() const { return waited_ >= options_.patience; }

  /// The best value so far; infinity before the first.
  double best() const { return best_; }
  /// Values since then.
  int waited() const { return waited_; }
  /// For a run that resumes.
  void restore(double best, int waited) {
    best_ = best;
    waited_ = waited;
  }

 private:
  EarlyStopOptions options_;
  double best_ = std::numeric_limits<double>::infinity();
  int waited_ = 0;
};

}  // namespace lockstep
