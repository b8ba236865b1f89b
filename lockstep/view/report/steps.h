// What the time of training steps went to. A rank's life is cut at the beginnings of its steps, and each moment belongs to
// what is most special of all that went on in it:
//
//   rank 0   [ step 17: forward, backward | exposed ][ data ][ step 18 ...
//             compute                       others    data     compute
//                                           transfer
#pragma once

#include <map>
#include <set>
#include <vector>

#include "lockstep/view/report/analysis.h"

namespace lockstep::view {

/// Whether calls of a class keep the program waiting, or are under way beside it: by its totals.
class BlockingCalls {
 public:
  /// Without a rank of the record all do.
  explicit BlockingCalls(const trace::FlightRank* rank);
  bool contains(const trace::CollectiveEvent& call) const;

 private:
  std::set<std::pair<Operation, int>> asynchronous_;  // with their size_bin
};

/// A rank's events by whom they belong to.
class StepsOfRank {
 public:
  StepsOfRank(const RankTimeline& rank, const trace::FlightRank* record);

  struct Step {
    const trace::TrainingStepEvent* event = nullptr;
    PhaseTimes times = {};
    double duration_ns = 0;  ///< to the next step's begin; 0: that is not known
  };
  /// Steps by number, and by which one of that number it is, in the order of their begins.
  using Key = std::pair<std::uint64_t, int>;
  const std::map<Key, Step>& steps() const { return steps_; }
  std::map<Key, Step>& steps() { return steps_; }

  /// Whether `call` is a step's own: begun in it, and not in its forward.
  bool is_of_a_step(const trace::CollectiveEvent& call) const;
  /// Adds up a step's own calls by their order. `times`: of which steps.
  void add_calls(const std::set<Key>& of, StepFacts& facts) const;

 private:
  void paint(const RankTimeline& rank, const BlockingCalls& blocking);

  std::vector<const trace::TrainingStepEvent*> ordered_;
  std::vector<const trace::CollectiveEvent*> calls_;  // in order
  std::vector<std::pair<std::uint64_t, std::uint64_t>> forwards_;
  std::map<Key, Step> steps_;
  std::vector<Key> keys_;  // of ordered_
};

/// `ranks`: of each rank, whose steps then have what was exposed in them. nullopt: nobody has two steps, one after the other.
std::optional<StepFacts> step_facts(std::vector<StepsOfRank>& ranks);

}  // namespace lockstep::view
