// Schedules that were broken on purpose are refused, each for its reason. That every algorithm is proven
// shows algorithms_test.cpp.
#include "lockstep/schedule/verify.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "lockstep/schedule/algorithms.h"
#include "lockstep/schedule/schedule_mutation_test.h"

namespace lockstep::schedule {
namespace {

using ::testing::HasSubstr;

// Schedules for all ranks, to be broken.
struct Broken {
  Call call;
  std::vector<Schedule> ranks;

  Broken(Algorithm algorithm, Call made_for) : call(made_for) {
    for (call.rank = 0; call.rank < call.ranks; ++call.rank) ranks.push_back(algorithm(call));
  }
  std::vector<Step>& steps(int rank) {
    return ScheduleMutation::steps(ranks[static_cast<std::size_t>(rank)]);
  }
  std::size_t find(int rank, StepKind kind) {
    const auto& list = steps(rank);
    return static_cast<std::size_t>(
        std::find_if(list.begin(), list.end(), [&](const Step& step) { return step.kind == kind; }) -
        list.begin());
  }
  std::string refusal() {
    const Verdict verdict = verify(ranks, calls_of_all(call));
    EXPECT_FALSE(verdict);
    return verdict.reason;
  }
};

const Call four_in_arena{.elements = 16, .ranks = 4, .buffers = BufferClass::arena};
const Call one_message{.operation = Operation::broadcast, .elements = 4, .ranks = 2};
const Call four_private{.elements = 16, .ranks = 4};

TEST(Verify, RefusesArenaPushWithoutItsLastWait) {
  Broken broken(arena_all_reduce, four_in_arena);
  for (int rank = 0; rank < 4; ++rank) broken.steps(rank).resize(broken.steps(rank).size() - 2);
  EXPECT_THAT(broken.refusal(), HasSubstr("rank 0 may read input[3]+0..4 before rank 3 wrote it"));
}

TEST(Verify, RefusesArenaPushWithoutItsFirstWait) {
  Broken broken(arena_all_reduce, four_in_arena);
  for (int rank = 0; rank < 4; ++rank) {
    auto& steps = broken.steps(rank);
    steps.erase(steps.begin(), steps.begin() + 2);
    for (Step& step : steps) step.target = step.target == 2 ? 1 : step.target;
  }
  EXPECT_THAT(broken.refusal(), HasSubstr("before rank 1 wrote it"));
}

TEST(Verify, RefusesAReductionThatOneRankDropped) {
  Broken broken(arena_all_reduce, four_in_arena);
  auto& steps = broken.steps(2);
  steps.erase(steps.begin() + static_cast<std::ptrdiff_t>(broken.find(2, StepKind::reduce)));
  EXPECT_THAT(broken.refusal(), HasSubstr("rank 0 ends with a wrong element 8: nothing was written"));
}

TEST(Verify, RefusesAForgottenContribution) {
  Broken broken(one_shot_all_reduce, four_private);
  Step& reduce = broken.steps(1)[broken.find(1, StepKind::reduce)];
  ++reduce.first_place;
  --reduce.source_count;
  EXPECT_THAT(broken.refusal(), HasSubstr("rank 0's contribution is missing"));
}

TEST(Verify, RefusesContributionsOutOfTheOrderOfRanks) {
  const Verdict verdict = verify(ring_all_reduce, {.elements = 16, .ranks = 4, .keeps_order = true});
  EXPECT_THAT(verdict.reason, HasSubstr("contributions are not in the order of ranks"));
}

TEST(Verify, RefusesADoubledContribution) {
  Broken broken(one_shot_all_reduce, four_private);
  auto& schedule = broken.ranks[1];
  const Step& reduce = broken.steps(1)[broken.find(1, StepKind::reduce)];
  ScheduleMutation::places(schedule)[reduce.first_place + 2] =
      ScheduleMutation::places(schedule)[reduce.first_place + 3];
  EXPECT_THAT(broken.refusal(), HasSubstr("a contribution counts twice"));
}

TEST(Verify, RefusesAnotherOrderOfSummation) {
  Broken broken(one_shot_all_reduce, four_private);
  auto& schedule = broken.ranks[1];
  const Step& reduce = broken.steps(1)[broken.find(1, StepKind::reduce)];
  std::swap(ScheduleMutation::places(schedule)[reduce.first_place],
            ScheduleMutation::places(schedule)[reduce.first_place + 3]);
  EXPECT_THAT(broken.refusal(), HasSubstr("not in the order of rank 0's"));
}

TEST(Verify, RefusesAnAverageThatIsNotScaled) {
  Broken broken(ring_all_reduce, four_private);
  for (Step& step : broken.steps(3)) step.last_reduction = false;
  EXPECT_THAT(broken.refusal(), HasSubstr("an average would not be scaled"));
}

TEST(Verify, RefusesADroppedSend) {
  Broken broken(tree_broadcast, {.operation = Operation::broadcast, .elements = 16, .ranks = 4});
  auto& steps = broken.steps(2);
  const auto dropped = broken.find(2, StepKind::send);
  steps.erase(steps.begin() + static_cast<std::ptrdiff_t>(dropped));  // and the wait for it
  std::erase_if(steps,
                [&](const Step& step) { return step.kind == StepKind::wait && step.target == dropped; });
  EXPECT_THAT(broken.refusal(), HasSubstr("deadlock: rank 3, step 1 waits to receive from rank 2"));
}

Schedule crossed_sends(const Call& call) {
  Schedule steps;
  const int peer = 1 - call.rank;
  steps.wait(steps.send(peer, {Space::input, call.rank, 0}, call.elements));
  steps.wait(steps.receive(peer, {Space::output, call.rank, 0}, call.elements));
  return steps;
}

TEST(Verify, RefusesCrossedSendsThatWaitForEachOther) {
  Broken broken(crossed_sends, {.operation = Operation::all_gather, .elements = 4, .ranks = 2});
  EXPECT_THAT(broken.refusal(),
              HasSubstr("deadlock: rank 0, step 1 waits to send to rank 1; rank 1, step 1 waits"));
}

const Call two_hosts_of_two{
    .elements = 200, .ranks = 4, .buffers = BufferClass::arena, .host_of = {0, 0, 1, 1}};

TEST(Verify, RefusesAnExchangeThatOneRankLeavesOut) {
  Broken broken(engine_all_reduce, two_hosts_of_two);
  auto& steps = broken.steps(3);
  const auto left_out = broken.find(3, StepKind::exchange);
  std::erase_if(steps,
                [&](const Step& step) { return step.kind == StepKind::wait && step.target == left_out; });
  steps.erase(steps.begin() + static_cast<std::ptrdiff_t>(left_out));
  EXPECT_THAT(broken.refusal(),
              HasSubstr("deadlock: rank 0, step 7 awaits stage 2; rank 1, step 4 waits for others in the "
                        "engine's all_reduce"));
}

TEST(Verify, RefusesAnExchangeOfOtherElements) {
  Broken broken(engine_all_reduce, two_hosts_of_two);
  --broken.steps(2)[broken.find(2, StepKind::exchange)].elements;
  EXPECT_THAT(broken.refusal(), HasSubstr("rank 0, step 3 meets another exchange of rank 2, step 3"));
}

TEST(Verify, RefusesAResultThatIsTakenBeforeItsExchangeIsOver) {
  Broken broken(engine_all_reduce, two_hosts_of_two);
  for (int rank = 0; rank < 4; ++rank) {
    auto& steps = broken.steps(rank);
    const auto wait = broken.find(rank, StepKind::wait);
    std::swap(steps[wait], steps[wait + 1]);
  }
  EXPECT_THAT(broken.refusal(), HasSubstr("before"));
}

const Call two_narrow_hosts{.elements = 16,
                            .ranks = 2,
                            .host_of = {0, 1},
                            .narrow_wire = true,
                            .window_elements = 1000,
                            .windows = 6};

/// The copy of a rank's own sum back from the wire.
std::size_t find_own_sum(Broken& broken, int rank) {
  auto& steps = broken.steps(rank);
  for (std::size_t index = 0; index < steps.size(); ++index) {
    const auto& schedule = broken.ranks[static_cast<std::size_t>(rank)];
    if (steps[index].kind == StepKind::copy && schedule.sources(steps[index])[0].space == Space::wire &&
        schedule.destinations(steps[index])[0].space == Space::output)
      return index;
  }
  return steps.size();
}

TEST(Verify, RefusesARankThatAddsUpWhatDidNotCross) {
  Broken broken(hierarchical_all_reduce, two_narrow_hosts);
  const std::size_t own = find_own_sum(broken, 1);
  auto& schedule = broken.ranks[1];
  const Step copy = broken.steps(1)[own];
  ScheduleMutation::places(schedule)[copy.first_place] = {Space::input, 1, 0};  // instead of what was sent
  EXPECT_THAT(broken.refusal(),
              HasSubstr("rank 1 ends with a wrong element 0: not in the order of rank 0's"));
}

TEST(Verify, RefusesWholeElementsWhereNarrowOnesAreExpected) {
  Broken broken(hierarchical_all_reduce, two_narrow_hosts);
  const Step receive = broken.steps(1)[broken.find(1, StepKind::receive)];
  ScheduleMutation::places(broken.ranks[1])[receive.first_place].space = Space::output;
  EXPECT_THAT(broken.refusal(), HasSubstr("elements of another width"));
}

TEST(Verify, RefusesToAddUpNarrowElements) {
  Broken broken(hierarchical_all_reduce, two_narrow_hosts);
  const Step reduce = broken.steps(0)[broken.find(0, StepKind::reduce)];
  ScheduleMutation::places(broken.ranks[0])[reduce.first_place] = {Space::wire, 0, 0};
  EXPECT_THAT(broken.refusal(), HasSubstr("adds up elements as they cross to other hosts"));
}

TEST(Verify, RefusesANarrowWireThatNobodyAskedFor) {
  Broken broken(hierarchical_all_reduce, two_narrow_hosts);
  broken.call.narrow_wire = false;
  EXPECT_THAT(broken.refusal(), HasSubstr("leaves its memory: wire[0]+"));
}

TEST(Verify, RefusesTwoUnorderedWrites) {
  Broken broken(arena_gather,
                {.operation = Operation::gather, .elements = 4, .ranks = 4, .buffers = BufferClass::arena});
  auto& schedule = broken.ranks[1];
  const Step& copy = broken.steps(1)[broken.find(1, StepKind::copy)];
  ScheduleMutation::places(schedule)[copy.first_place + 1].offset = 0;  // where rank 0 writes
  EXPECT_THAT(broken.refusal(), HasSubstr("rank 1 may write output[0]+0..3 before rank 0 wrote it"));
}

TEST(Verify, RefusesWritingABufferThatIsStillBeingSent) {
  Broken broken(ring_all_reduce, {.elements = 16, .ranks = 4, .in_place = true});
  auto& steps = broken.steps(0);
  const auto send = broken.find(0, StepKind::send);
  const auto is_its_wait = [&](const Step& step) {
    return step.kind == StepKind::wait && step.target == send;
  };
  const auto wait = std::find_if(steps.begin(), steps.end(), is_its_wait);
  const Step late = *wait;
  steps.push_back(late);
  *wait = late.target == 0 ? steps[broken.find(0, StepKind::wait)] : late;  // another wait instead: harmless
  EXPECT_THAT(broken.refusal(), HasSubstr("rank 0 may write output[0]+12..16 before rank 0 has read it"));
}

TEST(Verify, RefusesASendThatIsNeverWaitedFor) {
  Broken broken(tree_broadcast, one_message);
  broken.steps(0).pop_back();
  EXPECT_THAT(broken.refusal(), HasSubstr("rank 0, step 0 is never waited for"));
}

TEST(Verify, RefusesCountsThatDiffer) {
  Broken broken(tree_broadcast, one_message);
  broken.steps(0)[0].elements = 3;
  EXPECT_THAT(broken.refusal(), HasSubstr("sends 3 elements, rank 1, step 0 expects 4"));
}

TEST(Verify, RefusesASecondMessageWithoutAReceiver) {
  Broken broken(tree_broadcast, one_message);
  broken.ranks[0].wait(broken.ranks[0].send(1, {Space::output, 0, 0}, 4));
  EXPECT_THAT(broken.refusal(), HasSubstr("deadlock: rank 0, step 3 waits to send to rank 1"));
}

TEST(Verify, RefusesLeavingTheBuffer) {
  Broken broken(arena_all_reduce, four_in_arena);
  broken.steps(3)[broken.find(3, StepKind::reduce)].elements += 1;
  EXPECT_THAT(broken.refusal(), HasSubstr("leaves its memory"));
}

TEST(Verify, RefusesOthersPrivateMemory) {
  Call call = four_in_arena;
  call.buffers = BufferClass::private_memory;
  EXPECT_THAT(verify(arena_all_reduce, call).reason, HasSubstr("which is not shared"));
}

TEST(Verify, RefusesReadingScratchBeforeAnythingIsThere) {
  Broken broken(ring_all_reduce, four_private);
  auto& schedule = broken.ranks[0];
  const Place fresh = schedule.scratch(0, 4);
  const Step& reduce = broken.steps(0)[broken.find(0, StepKind::reduce)];
  ScheduleMutation::places(schedule)[reduce.first_place] = fresh;
  EXPECT_THAT(broken.refusal(), HasSubstr("before anything is there"));
}

}  // namespace
}  // namespace lockstep::schedule
