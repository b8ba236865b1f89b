// Calls that follow each other use the same staging memory. Proven is what the executor does: each call goes
// on with the window that comes after the last one used, and none waits before it fills.
#include <gtest/gtest.h>

#include <algorithm>

#include "lockstep/schedule/algorithms.h"
#include "lockstep/schedule/staging_ring.h"
#include "lockstep/schedule/verify.h"

namespace lockstep::schedule {
namespace {

// Elements of a whole line each: windows begin at one.
constexpr std::size_t element_bytes = 64;
constexpr std::size_t window_elements = 12;
constexpr std::size_t windows_in_memory = 8;
constexpr std::size_t staging_bytes = windows_in_memory * window_elements * element_bytes;

/// Appends `call` to what a rank has done, as Execution and NativeBackend do.
class CallsInARow {
 public:
  void add(const Schedule& call, bool waits_first = false) {
    const bool is_first = waits_first || schedule_.steps().empty();
    const std::size_t first = is_first || !call.needs_no_first_wait() ? 0 : 2;
    windows_ = ring_.take(call.staged_pieces(), call.staged_elements() * element_bytes);
    started_.assign(call.steps().size(), 0);
    scratch_ = schedule_.scratch(0, call.scratch_elements()).offset;
    for (std::size_t index = first; index < call.steps().size(); ++index) add(call, index);
  }
  /// As if every call began with the same window.
  void forget() { ring_ = StagingRing(staging_bytes); }
  const Schedule& schedule() const { return schedule_; }

 private:
  void add(const Schedule& call, std::size_t index) {
    const Step& step = call.steps()[index];
    const int peer = static_cast<int>(step.target);
    switch (step.kind) {
      case StepKind::send:
        started_[index] = schedule_.send(peer, moved(call.sources(step)[0]), step.elements);
        break;
      case StepKind::receive:
        started_[index] = schedule_.receive(peer, moved(call.destinations(step)[0]), step.elements);
        break;
      case StepKind::wait: schedule_.wait(started_[step.target]); break;
      case StepKind::copy:
        schedule_.copy(moved(call.sources(step)[0]), moved(call.destinations(step)[0]), step.elements);
        break;
      case StepKind::reduce:
        schedule_.reduce(moved(call.sources(step)), moved(call.destinations(step)), step.elements,
                         step.last_reduction);
        break;
      case StepKind::arrive: schedule_.wait_for_all(); break;
      case StepKind::await: break;  // with its arrive
      case StepKind::exchange: FAIL() << "no engine is asked here";
    }
  }
  Place moved(Place place) const {
    if (place.space == Space::staging) {
      place.offset =
          windows_.begin_of(place.offset / window_elements) / element_bytes + place.offset % window_elements;
    }
    if (place.space == Space::scratch) place.offset += scratch_;
    return place;
  }
  std::vector<Place> moved(std::span<const Place> places) const {
    std::vector<Place> result;
    for (const Place& place : places) result.push_back(moved(place));
    return result;
  }

  StagingRing ring_{staging_bytes};
  StagingWindows windows_;
  Schedule schedule_;
  // Of the call that is being added: its own steps as they are numbered here, and where its scratch memory begins.
  std::vector<Schedule::StepIndex> started_;
  std::size_t scratch_ = 0;
};

class StagedCalls : public ::testing::TestWithParam<AlgorithmEntry> {
 protected:
  Call call_of(int ranks, std::size_t elements) const {
    Call call{.operation = GetParam().operation,
              .elements = elements,
              .ranks = ranks,
              .root = ranks - 1,
              .window_elements = window_elements,
              .windows = windows_in_memory};
    if (GetParam().requirement == Requirement::hosts) {  // the first has two ranks or more
      for (int rank = 0; rank < ranks; ++rank) call.host_of.push_back(rank / ((ranks + 1) / 2));
    }
    return call;
  }
  /// Calls one after another, on all ranks, some of them past the end of the memory.
  template <class Add>
  Verdict verify_some(const Call& call, Add add) const {
    std::vector<Schedule> schedules;
    const std::vector<Call> calls = calls_of_all(call);
    for (Call mine : calls) {
      mine.windows = SIZE_MAX;
      const Schedule schedule = GetParam().algorithm(mine);
      CallsInARow row;
      for (std::size_t done = 0; done < 2 * windows_in_memory; ++done) add(row, schedule);
      schedules.push_back(row.schedule());
    }
    return verify(schedules, calls);
  }
};

TEST_P(StagedCalls, NeedNoWaitBetweenThem) {
  for (const int ranks : {2, 3, 4, 5}) {
    for (const std::size_t elements : {1, 5, 11, 24, 25, 40, 61}) {  // of one piece, of two, of many
      const Verdict verdict = verify_some(
          call_of(ranks, elements), [](CallsInARow& row, const Schedule& schedule) { row.add(schedule); });
      EXPECT_TRUE(verdict) << ranks << " ranks, " << elements << " elements: " << verdict.reason;
    }
  }
}

/// Those whose results do not lie in gaps that a fill leaves.
class StagedCallsWithoutGaps : public StagedCalls {};

TEST_P(StagedCallsWithoutGaps, WouldMeetInAWindowThatIsStillRead) {
  const auto forgetful = [](CallsInARow& row, const Schedule& schedule) {
    row.forget();
    row.add(schedule);
  };
  EXPECT_FALSE(verify_some(call_of(3, 3), forgetful)) << "one piece: it is always the first window";
}

std::vector<AlgorithmEntry> staged_algorithms(bool with_gaps) {
  std::vector<AlgorithmEntry> staged;
  std::ranges::copy_if(all_algorithms(), std::back_inserter(staged), [&](const AlgorithmEntry& entry) {
    const bool has_gaps = entry.algorithm == staged_all_reduce || entry.algorithm == staged_reduce;
    const bool has_hosts = entry.requirement == Requirement::hosts && entry.operation != Operation::barrier;
    return (entry.requirement == Requirement::staging && (with_gaps || !has_gaps)) ||
           (has_hosts && with_gaps);
  });
  return staged;
}

std::string parameter_name(const ::testing::TestParamInfo<AlgorithmEntry>& info) {
  return std::string(info.param.name) + "_" + std::string(to_string(info.param.operation));
}

INSTANTIATE_TEST_SUITE_P(Schedules, StagedCalls, ::testing::ValuesIn(staged_algorithms(true)),
                         parameter_name);
INSTANTIATE_TEST_SUITE_P(Schedules, StagedCallsWithoutGaps, ::testing::ValuesIn(staged_algorithms(false)),
                         parameter_name);

}  // namespace
}  // namespace lockstep::schedule
