#include "lockstep/schedule/calibration.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::schedule {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::Not;

/// As `count` sizes, each four times the one before, beginning with `first`.
std::vector<Timing> timings(Where where, const std::string& algorithm, std::uint64_t first,
                            const std::vector<double>& seconds) {
  std::vector<Timing> made;
  for (const double each : seconds) {
    made.push_back({.operation = Operation::all_reduce,
                    .where = where,
                    .algorithm = algorithm,
                    .bytes = first,
                    .seconds = each});
    first *= 4;
  }
  return made;
}

std::vector<Timing> all_of(std::vector<std::vector<Timing>> parts) {
  std::vector<Timing> all;
  for (const auto& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

std::vector<Tuning::Choice> choices(const Tuning& table, Where where, int ranks) {
  const Tuning::Rule* rule = table.rule_for(Operation::all_reduce, where, ranks);
  return rule == nullptr ? std::vector<Tuning::Choice>() : rule->choose;
}

TEST(Calibration, TakesTheFastestAndChangesHalfwayBetweenSizes) {
  const Tuning table = calibrate({}, 4,
                                 all_of({timings(Where::channels, "tree", 1024, {1, 2, 8, 32}),
                                         timings(Where::channels, "ring", 1024, {4, 4, 5, 9})}));
  EXPECT_THAT(choices(table, Where::channels, 4),
              ElementsAre(Tuning::Choice{"tree", 8192}, Tuning::Choice{"ring"}));
}

TEST(Calibration, NoiseMakesNoRules) {
  const auto measured = all_of({timings(Where::channels, "tree", 1024, {1.00, 1.03, 0.98}),
                                timings(Where::channels, "ring", 1024, {1.02, 1.00, 1.01})});
  Tuning before;
  before.rules = {{Operation::all_reduce, Where::channels, 2, {{"ring"}}}};
  EXPECT_THAT(choices(calibrate(before, 4, measured), Where::channels, 4),
              ElementsAre(Tuning::Choice{"ring"}));
  EXPECT_THAT(choices(calibrate({}, 4, measured), Where::channels, 4), ElementsAre(Tuning::Choice{"tree"}));
}

TEST(Calibration, KeepsWhatItHasNotMeasured) {
  const Tuning before = Tuning::standard();
  const Tuning table = calibrate(before, 4, timings(Where::private_memory, "ring", 1024, {1}));
  for (const Tuning::Rule& rule : before.rules) EXPECT_THAT(table.rules, Contains(rule));
  EXPECT_EQ(table.rules.size(), before.rules.size() + 1);
}

TEST(Calibration, ReplacesARuleForTheSameRanks) {
  const Tuning table = calibrate(Tuning::standard(), 2, timings(Where::private_memory, "ring", 1024, {1}));
  EXPECT_EQ(table.rules.size(), Tuning::standard().rules.size());
  EXPECT_THAT(choices(table, Where::private_memory, 2), ElementsAre(Tuning::Choice{"ring"}));
}

TEST(Calibration, SlotsAreTakenWhileTheyAreNoSlower) {
  const Tuning table = calibrate({}, 2,
                                 all_of({timings(Where::arena, "arena", 64, {3, 3, 3, 3}),
                                         timings(Where::arena, "one_shot", 64, {1, 2, 4, 1}),
                                         timings(Where::private_memory, "staged", 64, {3, 3, 3, 3}),
                                         timings(Where::private_memory, "one_shot", 64, {1, 2, 4, 1})}));
  EXPECT_THAT(choices(table, Where::slots, 2), ElementsAre(Tuning::Choice{"one_shot", 256}));
  EXPECT_THAT(choices(table, Where::arena, 2), ElementsAre(Tuning::Choice{"arena"}));
}

TEST(Calibration, SlotsThatAreNeverFasterAreNotTaken) {
  const Tuning table = calibrate(
      {}, 2,
      all_of({timings(Where::arena, "arena", 64, {1, 1}), timings(Where::arena, "one_shot", 64, {2, 2})}));
  EXPECT_THAT(choices(table, Where::slots, 2), ElementsAre(Tuning::Choice{"one_shot", 0}));
}

TEST(Calibration, ATableThatWasCalibratedCanBeRead) {
  const Tuning table = calibrate(Tuning::standard(), 3, timings(Where::channels, "ring", 1, {1, 2, 3}));
  EXPECT_EQ(Tuning::parse(table.to_text(), "table"), table);
}

TEST(Calibration, CandidatesAreWhatCanBeTakenThere) {
  const auto names = [](Where where, bool has_nodes = false) {
    std::vector<std::string> list;
    for (const AlgorithmEntry* entry : candidates(Operation::all_reduce, where, has_nodes))
      list.emplace_back(entry->name);
    return list;
  };
  EXPECT_THAT(names(Where::arena), Contains("arena"));
  EXPECT_THAT(names(Where::arena), Not(Contains("numa")));
  EXPECT_THAT(names(Where::arena, true), Contains("numa"));
  EXPECT_THAT(names(Where::private_memory), Not(Contains("arena")));
  EXPECT_THAT(names(Where::private_memory), Contains("staged"));
  EXPECT_THAT(names(Where::channels), Not(Contains("staged")));
  EXPECT_THAT(names(Where::channels), Contains("ring"));
}

}  // namespace
}  // namespace lockstep::schedule
