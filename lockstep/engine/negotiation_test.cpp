#include "lockstep/engine/negotiation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/failure_test.h"

namespace lockstep {
namespace {

using namespace std::chrono_literals;
using test::corruption_of;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const Negotiation::Clock::time_point begin{};

NamedRequest sum_of(const std::string& name, std::int64_t elements, Dtype dtype = Dtype::f32) {
  return {.name = name, .operation = Operation::all_reduce, .dtype = dtype, .shapes = {{elements}}};
}

NamedRequest gather_of(const std::string& name, std::int64_t rows) {
  return {
      .name = name, .operation = Operation::all_gather, .dtype = Dtype::u8, .shapes = {{4}}, .rows = {rows}};
}

/// Of two ranks.
Negotiation of_two(std::size_t fusion_bytes = 1000) { return {{0, 1}, fusion_bytes}; }

std::vector<std::string> names_of(const std::vector<Decision>& decisions) {
  std::vector<std::string> names;
  for (const auto& decision : decisions)
    names.push_back((decision.with_previous ? "+" : "") + decision.request.name);
  return names;
}

TEST(Negotiation, StartsWhatTheLastRankHasSubmittedInTheOrderOfLastSubmissions) {
  auto negotiation = of_two(0);
  for (const auto* name : {"a", "b", "c"}) negotiation.submit(0, sum_of(name, 1), begin);
  EXPECT_THAT(negotiation.take_decisions(), IsEmpty());
  negotiation.submit(1, sum_of("b", 1), begin);
  negotiation.submit(1, sum_of("a", 1), begin);
  EXPECT_THAT(names_of(negotiation.take_decisions()), ElementsAre("b", "a"));
  EXPECT_TRUE(negotiation.awaits_others(0));
  EXPECT_FALSE(negotiation.awaits_others(1));
  EXPECT_THAT(negotiation.take_decisions(), IsEmpty());
}

TEST(Negotiation, FusesWhatIsAlikeUpToTheLimit) {
  auto negotiation = of_two(1000);
  for (const int rank : {0, 1}) {
    negotiation.submit(rank, sum_of("a", 100), begin);
    negotiation.submit(rank, sum_of("b", 100, Dtype::f64), begin);
    negotiation.submit(rank, sum_of("c", 100), begin);
    negotiation.submit(rank, gather_of("d", rank), begin);
    negotiation.submit(rank, sum_of("e", 100), begin);
  }
  // 400 + 400 bytes of f32; with e they would be 1,200.
  EXPECT_THAT(names_of(negotiation.take_decisions()), ElementsAre("a", "+c", "b", "d", "e"));
}

TEST(Negotiation, KnowsANameAfterItsFirstDecision) {
  auto negotiation = of_two();
  for (const int rank : {0, 1}) negotiation.submit(rank, sum_of("a", 3), begin);
  const auto first = negotiation.take_decisions();
  ASSERT_EQ(first.size(), 1U);
  EXPECT_FALSE(first[0].is_known);
  for (const int rank : {1, 0}) negotiation.submit_known(rank, first[0].number, begin);
  const auto second = negotiation.take_decisions();
  ASSERT_EQ(second.size(), 1U);
  EXPECT_TRUE(second[0].is_known);
  EXPECT_EQ(second[0].number, first[0].number);
}

TEST(Negotiation, TellsRowsAgainWhenARankHasOthers) {
  auto negotiation = of_two();
  negotiation.submit(0, gather_of("a", 5), begin);
  negotiation.submit(1, gather_of("a", 7), begin);
  const auto first = negotiation.take_decisions();
  ASSERT_EQ(first.size(), 1U);
  EXPECT_THAT(first[0].rows, ElementsAre(ElementsAre(5), ElementsAre(7)));
  negotiation.submit_known(0, first[0].number, begin);
  negotiation.submit(1, gather_of("a", 9), begin);
  const auto second = negotiation.take_decisions();
  ASSERT_EQ(second.size(), 1U);
  EXPECT_FALSE(second[0].is_known);
  EXPECT_THAT(second[0].rows, ElementsAre(ElementsAre(5), ElementsAre(9)));
  negotiation.submit(1, gather_of("a", 1), begin);
  negotiation.submit_known(0, first[0].number, begin);
  EXPECT_THAT(negotiation.take_decisions()[0].rows, ElementsAre(ElementsAre(5), ElementsAre(1)));
}

TEST(Negotiation, RefusesOneNameForTwoThings) {
  Negotiation negotiation({4, 6}, 0);
  negotiation.submit(0, sum_of("a", 3), begin);
  negotiation.submit(1, sum_of("a", 4), begin);
  auto decisions = negotiation.take_decisions();
  ASSERT_EQ(decisions.size(), 1U);
  EXPECT_EQ(decisions[0].kind, Decision::Kind::refuse);
  EXPECT_EQ(decisions[0].code, ErrorCode::mismatch);
  EXPECT_EQ(
      decisions[0].why,
      "ranks mean different things by one name: all_reduce \"a\" (sum of f32 [3]) on rank 4, all_reduce "
      "\"a\" (sum of f32 [4]) on rank 6; submit the same on all ranks");
  // The name is free for something that fits.
  for (const int rank : {0, 1}) negotiation.submit(rank, sum_of("a", 4), begin);
  decisions = negotiation.take_decisions();
  EXPECT_EQ(decisions[0].kind, Decision::Kind::start);
  // And what is known by number is compared with what is new.
  negotiation.submit(0, sum_of("a", 8), begin);
  negotiation.submit_known(1, decisions[0].number, begin);
  EXPECT_THAT(negotiation.take_decisions()[0].why, HasSubstr("[8]) on rank 4"));
  negotiation.submit_known(1, decisions[0].number, begin);
  negotiation.submit(0, sum_of("a", 8), begin);
  EXPECT_THAT(negotiation.take_decisions()[0].why, HasSubstr("[8]) on rank 4"));
}

TEST(Negotiation, GoesOnWithoutRanksThatHaveJoined) {
  auto negotiation = of_two();
  negotiation.submit(0, sum_of("a", 3), begin);
  negotiation.submit(0, gather_of("b", 2), begin);
  negotiation.join(1);
  const auto decisions = negotiation.take_decisions();
  ASSERT_EQ(decisions.size(), 2U);
  EXPECT_EQ(decisions[0].kind, Decision::Kind::start);
  EXPECT_THAT(decisions[1].rows, ElementsAre(ElementsAre(2), ElementsAre(0)));
  negotiation.submit_known(0, decisions[1].number, begin);
  EXPECT_THAT(negotiation.take_decisions()[0].rows, ElementsAre(ElementsAre(2), ElementsAre(0)));
  negotiation.submit(0, {.name = "c", .operation = Operation::broadcast, .dtype = Dtype::u8, .shapes = {{1}}},
                     begin);
  const auto refused = negotiation.take_decisions();
  ASSERT_EQ(refused.size(), 1U);
  EXPECT_THAT(refused[0].why,
              HasSubstr("rank 1 among them: only all_reduce (sum or average), all_gather and"));
  EXPECT_TRUE(negotiation.awaits_others(1)) << "for the others to join";
  negotiation.join(0);
  EXPECT_FALSE(negotiation.awaits_others(1));
  const auto last = negotiation.take_decisions();
  ASSERT_EQ(last.size(), 1U);
  EXPECT_EQ(last[0].kind, Decision::Kind::all_joined);
  EXPECT_EQ(last[0].last_joined, 0);
  EXPECT_FALSE(negotiation.awaits_others(0));
}

NamedRequest on_gpu(NamedRequest request) {
  request.is_on_gpu = true;
  return request;
}

/// Of what two ranks submit next.
Decision decided(Negotiation& negotiation) {
  const auto decisions = negotiation.take_decisions();
  return decisions.size() == 1 ? decisions[0] : Decision{.kind = Decision::Kind::refuse};
}

TEST(Negotiation, GoesThroughMainMemoryUnlessAllAreOnGpus) {
  auto negotiation = of_two();
  for (const int rank : {0, 1}) negotiation.submit(rank, on_gpu(sum_of("a", 3)), begin);
  const Decision first = decided(negotiation);
  EXPECT_TRUE(first.request.is_on_gpu);
  for (const int rank : {0, 1}) negotiation.submit_known(rank, first.number, begin);
  const Decision second = decided(negotiation);
  EXPECT_TRUE(second.is_known && second.request.is_on_gpu);
  // One of them elsewhere, whoever comes first.
  negotiation.submit(0, sum_of("a", 3), begin);
  negotiation.submit_known(1, first.number, begin);
  const Decision third = decided(negotiation);
  EXPECT_EQ(third.kind, Decision::Kind::start);
  EXPECT_FALSE(third.is_known || third.request.is_on_gpu);
  negotiation.submit_known(0, first.number, begin);  // in main memory, as it is known now
  negotiation.submit(1, on_gpu(sum_of("a", 3)), begin);
  EXPECT_FALSE(decided(negotiation).request.is_on_gpu);
  for (const int rank : {1, 0}) negotiation.submit(rank, on_gpu(sum_of("a", 3)), begin);
  EXPECT_TRUE(decided(negotiation).request.is_on_gpu);
}

TEST(Negotiation, GoesThroughMainMemoryWhenSomeHaveJoined) {
  auto negotiation = of_two();
  for (const int rank : {0, 1}) negotiation.submit(rank, on_gpu(sum_of("a", 3)), begin);
  const Decision first = decided(negotiation);
  negotiation.join(1);
  negotiation.submit_known(0, first.number, begin);
  const Decision second = decided(negotiation);
  EXPECT_EQ(second.kind, Decision::Kind::start);
  EXPECT_FALSE(second.is_known || second.request.is_on_gpu);
}

TEST(Negotiation, DoesNotFuseWhatIsOnGpusWithWhatIsNot) {
  auto negotiation = of_two();
  for (const int rank : {0, 1}) {
    negotiation.submit(rank, on_gpu(sum_of("a", 3)), begin);
    negotiation.submit(rank, sum_of("b", 3), begin);
    negotiation.submit(rank, on_gpu(sum_of("c", 3)), begin);
  }
  EXPECT_THAT(names_of(negotiation.take_decisions()), ElementsAre("a", "+c", "b"));
}

TEST(Negotiation, NamesWhoHasNotSubmittedWhat) {
  Negotiation negotiation({0, 2, 5}, 0);
  negotiation.submit(1, sum_of("a", 3), begin);
  negotiation.submit(0, sum_of("b", 3), begin + 10s);
  EXPECT_THAT(
      negotiation.stalled_since(begin + 1s),
      ElementsAre("all_reduce \"a\" (sum of f32 [3]) was submitted by rank 2, but not by ranks 0, 5"));
  EXPECT_THAT(negotiation.stalled_since(begin + 1s), IsEmpty());
  negotiation.submit(0, sum_of("a", 3), begin + 11s);
  negotiation.refuse_stalled_since(begin + 1s, 60s);
  const auto decisions = negotiation.take_decisions();
  ASSERT_EQ(decisions.size(), 1U);
  EXPECT_EQ(decisions[0].code, ErrorCode::timeout);
  EXPECT_EQ(decisions[0].peer, 5);
  EXPECT_EQ(decisions[0].why,
            "all_reduce \"a\" (sum of f32 [3]) was submitted by ranks 0, 2, but not by rank 5, for 60 s");
}

TEST(Negotiation, RefusesWhatNoRankCanSay) {
  auto negotiation = of_two();
  negotiation.submit(0, sum_of("a", 3), begin);
  EXPECT_THAT(corruption_of([&] { negotiation.submit(0, sum_of("a", 3), begin); }),
              HasSubstr("rank 0 submits one name twice"));
  EXPECT_THAT(corruption_of([&] { negotiation.submit_known(1, 7, begin); }),
              HasSubstr("rank 1 submits number 7, which nobody knows"));
  negotiation.join(1);
  EXPECT_THAT(corruption_of([&] { negotiation.join(1); }), HasSubstr("rank 1 joins twice"));
  EXPECT_THAT(corruption_of([&] { negotiation.submit(1, sum_of("b", 3), begin); }),
              HasSubstr("rank 1 submits after it has joined"));
}

TEST(Negotiation, ForgetsNamesBeyondWhatItCanNumber) {
  auto negotiation = of_two(0);
  for (int i = 0; i < (1 << 16) + 10; ++i) {
    const auto request = sum_of(std::to_string(i), 1);
    for (const int rank : {0, 1}) negotiation.submit(rank, request, begin);
    const auto decisions = negotiation.take_decisions();
    ASSERT_EQ(decisions.size(), 1U);
    ASSERT_EQ(decisions[0].number == Decision::no_number, i >= (1 << 16));
    ASSERT_EQ(decisions[0].request.name, request.name);
  }
}

}  // namespace
}  // namespace lockstep
