// Calls that follow each other use the same staging memory. Proven is what the executor does: each call goes
// on with the half that comes after the last one used, and none waits before it fills.
#include <gtest/gtest.h>

#include <algorithm>

#include "lockstep/schedule/algorithms.h"
#include "lockstep/schedule/verify.h"

namespace lockstep {
namespace {

constexpr std::size_t most_staged = 24;  // elements, in both halves

/// Appends `call` to what a rank has done, as Execution and NativeBackend do.
class CallsInARow {
 public:
  explicit CallsInARow(std::size_t half) : half_(half) {}

  void add(const Schedule& call, bool waits_first = false) {
    const std::size_t first = waits_first || schedule_.steps().empty() ? 0 : 2;
    for (const Step& step : std::span(call.steps()).subspan(first)) add(call, step);
    turned_ = turned_ != (call.staging_turns() % 2 == 1);
  }
  /// As if every call began with the same half.
  void forget_turn() { turned_ = false; }
  const Schedule& schedule() const { return schedule_; }

 private:
  void add(const Schedule& call, const Step& step) {
    switch (step.kind) {
      case StepKind::copy:
        schedule_.copy(moved(call.sources(step)[0]), moved(call.destinations(step)[0]), step.elements);
        break;
      case StepKind::reduce:
        schedule_.reduce(moved(call.sources(step)), moved(call.destinations(step)), step.elements,
                         step.last_reduction);
        break;
      case StepKind::arrive: schedule_.wait_for_all(); break;
      case StepKind::await: break;  // with its arrive
      default: FAIL() << "staged schedules send nothing";
    }
  }
  Place moved(Place place) const {
    if (place.space == Space::staging && turned_) place.offset += place.offset < half_ ? half_ : -half_;
    return place;
  }
  std::vector<Place> moved(std::span<const Place> places) const {
    std::vector<Place> result;
    for (const Place& place : places) result.push_back(moved(place));
    return result;
  }

  std::size_t half_;
  bool turned_ = false;
  Schedule schedule_;
};

class StagedCalls : public ::testing::TestWithParam<AlgorithmEntry> {
 protected:
  Call call_of(int ranks, std::size_t elements) const {
    return {.operation = GetParam().operation,
            .elements = elements,
            .ranks = ranks,
            .root = ranks - 1,
            .staging_elements = most_staged};
  }
  /// Three calls one after another, on all ranks.
  template <class Add>
  Verdict verify_three(const Call& call, Add add) const {
    std::vector<Schedule> schedules;
    const std::vector<Call> calls = calls_of_all(call);
    for (const Call& mine : calls) {
      CallsInARow row(most_staged / 2);
      for (int i = 0; i < 3; ++i) add(row, GetParam().algorithm(mine));
      schedules.push_back(row.schedule());
    }
    return verify(schedules, calls);
  }
};

TEST_P(StagedCalls, NeedNoWaitBetweenThem) {
  for (const int ranks : {2, 3, 4, 5}) {
    for (const std::size_t elements : {1, 5, 11, 24, 25, 40, 61}) {  // of one piece, of two, of many
      const Verdict verdict = verify_three(
          call_of(ranks, elements), [](CallsInARow& row, const Schedule& schedule) { row.add(schedule); });
      EXPECT_TRUE(verdict) << ranks << " ranks, " << elements << " elements: " << verdict.reason;
    }
  }
}

TEST_P(StagedCalls, WouldMeetInAHalfThatIsStillRead) {
  // Its results lie in gaps that a fill leaves.
  if (GetParam().algorithm == staged_all_reduce || GetParam().algorithm == staged_reduce) return;
  const auto forgetful = [](CallsInARow& row, const Schedule& schedule) {
    row.forget_turn();
    row.add(schedule);
  };
  EXPECT_FALSE(verify_three(call_of(3, 3), forgetful)) << "one piece: it is always the first half";
}

INSTANTIATE_TEST_SUITE_P(Schedules, StagedCalls, ::testing::ValuesIn([] {
                           std::vector<AlgorithmEntry> staged;
                           std::ranges::copy_if(all_algorithms(), std::back_inserter(staged),
                                                [](const AlgorithmEntry& entry) {
                                                  return entry.requirement == Requirement::staging;
                                                });
                           return staged;
                         }()),
                         [](const auto& info) {
                           return std::string(info.param.name) + "_" +
                                  std::string(to_string(info.param.operation));
                         });

}  // namespace
}  // namespace lockstep
