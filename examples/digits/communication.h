// What communication cost, read from the group's record: it holds one event for each training step.
#pragma once

#include <lockstep/lockstep.h>

#include <cstdint>
#include <vector>

class Communication {
 public:
  explicit Communication(const lockstep::Group& group) : group_(group), position_(group.recorder().steps()) {}

  /// Reads what is new in the record, which keeps a few thousand events only: call it once an epoch.
  void collect();

  /// Mean over all ranks of the time per step for which communication held the program up, copying included.
  double exposed_us_per_step() const;
  /// Mean over all ranks of the part of `seconds` that was spent waiting for other ranks.
  double waiting_share(double seconds) const;
  /// Part of the buckets that were complete when the last gradient was ready, in this rank's median step.
  double overlap() const;

 private:
  lockstep::Group group_;
  std::uint64_t position_;
  std::vector<lockstep::trace::TrainingStepEvent> steps_;
};
