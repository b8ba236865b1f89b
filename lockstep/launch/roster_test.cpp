#include "lockstep/launch/roster.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::launch {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;
using Answer = Roster::Answer;
using Fenced = Roster::Fenced;

constexpr Roster::Rule tolerated{.is_tolerated = true};
constexpr Roster::Rule needed{};
constexpr Roster::Rule twice{.restarts = 2};

View view(std::uint64_t number, std::vector<Life> members) { return {number, std::move(members)}; }

TEST(Roster, BeginsWithAll) {
  Roster roster({needed, tolerated}, 1);
  EXPECT_TRUE(roster.take_change());
  EXPECT_FALSE(roster.take_change());
  EXPECT_EQ(roster.view(), view(1, {{0}, {1}}));
}

TEST(Roster, GoesOnWithoutThoseThatMayDie) {
  Roster roster({needed, tolerated, tolerated}, 1);
  (void)roster.take_change();
  EXPECT_EQ(roster.note_failure(1, "was killed"), Answer::goes_on);
  EXPECT_TRUE(roster.take_change());
  EXPECT_EQ(roster.view(), view(2, {{0}, {2}}));
  EXPECT_THAT(roster.take_out(), ElementsAre(Pair(Life{1}, "it was killed")));
  EXPECT_EQ(roster.note_failure(0, "was killed"), Answer::ends_job);
}

TEST(Roster, EndsWithTooFew) {
  Roster roster({tolerated, tolerated, tolerated, tolerated}, 2);
  roster.note_end(3);
  EXPECT_EQ(roster.note_failure(1, "died"), Answer::goes_on);
  EXPECT_EQ(roster.note_failure(0, "died"), Answer::goes_on);
  EXPECT_EQ(roster.left(), 2) << "one that ended well counts";
  EXPECT_EQ(roster.note_failure(2, "died"), Answer::ends_job);
}

TEST(Roster, StartsAgainUntilItGivesUp) {
  Roster roster({needed, twice}, 1);
  (void)roster.take_change();
  EXPECT_EQ(roster.note_failure(1, "died"), Answer::starts_again);
  EXPECT_EQ(roster.view(), view(2, {{0}})) << "until it has come";
  EXPECT_TRUE(roster.take_change());
  EXPECT_TRUE(roster.note_arrival(1));
  EXPECT_FALSE(roster.note_arrival(1));
  EXPECT_EQ(roster.view(), view(3, {{0}, {1, 1}}));
  EXPECT_TRUE(roster.take_change());
  EXPECT_EQ(roster.note_failure(1, "died"), Answer::starts_again);
  EXPECT_EQ(roster.note_failure(1, "died before it had come"), Answer::ends_job);
}

TEST(Roster, PutsThoseThatCameBackBehindTheOthers) {
  Roster roster({twice, needed}, 1);
  EXPECT_EQ(roster.note_failure(0, "died"), Answer::starts_again);
  EXPECT_TRUE(roster.note_arrival(0));
  EXPECT_THAT(roster.view().members, ElementsAre(Life{1}, Life{0, 1}));
}

TEST(Roster, DoesNotStartWhereItCannot) {
  Roster roster({needed, twice}, 1);
  EXPECT_EQ(roster.note_failure(1, "its host was lost", false), Answer::ends_job);
}

TEST(Roster, FencesWhoDoesNotAnswer) {
  Roster roster({needed, tolerated, twice}, 1);
  (void)roster.take_change();
  EXPECT_EQ(roster.fence(0, "late"), Fenced::no);
  EXPECT_EQ(roster.fence(1, "late"), Fenced::out);
  EXPECT_TRUE(roster.is_fenced(1));
  EXPECT_EQ(roster.fence(1, "late"), Fenced::no) << "it is out";
  EXPECT_EQ(roster.note_failure(1, "ended"), Answer::goes_on);
  EXPECT_THAT(roster.take_out(), ElementsAre(Pair(Life{1}, "late"))) << "and not twice";
  EXPECT_EQ(roster.fence(2, "late"), Fenced::to_be_ended);
  EXPECT_EQ(roster.note_failure(2, "was killed"), Answer::starts_again);
}

TEST(Roster, EndsWhomItCannotDoWithout) {
  Roster roster({tolerated, tolerated}, 2);
  EXPECT_EQ(roster.fence(1, "late"), Fenced::to_be_ended);
  EXPECT_EQ(roster.note_failure(1, "was killed"), Answer::ends_job);
}

TEST(Roster, MakesOneViewOfWhatHappensAtOnce) {
  Roster roster({tolerated, tolerated, tolerated}, 1);
  (void)roster.take_change();
  (void)roster.note_failure(0, "died");
  (void)roster.note_failure(2, "died");
  EXPECT_EQ(roster.view(), view(2, {{1}}));
  EXPECT_THAT(roster.take_out(), ElementsAre(Pair(Life{0}, "it died"), Pair(Life{2}, "it died")));
}

TEST(Roster, RanksMayWaitForAPlace) {
  Roster roster({tolerated, tolerated, tolerated}, 1, {true, true, false});
  EXPECT_EQ(roster.view(), view(1, {{0}, {1}}));
  EXPECT_TRUE(roster.is_waiting(2));
  EXPECT_EQ(roster.left(), 2);
  EXPECT_FALSE(roster.begin(1)) << "it is there";
  EXPECT_TRUE(roster.begin(2));
  EXPECT_FALSE(roster.begin(2));
  EXPECT_EQ(roster.left(), 3);
  EXPECT_TRUE(roster.note_arrival(2));
  EXPECT_EQ(roster.restarts_of(2), 0);
  EXPECT_EQ(roster.view(), view(1, {{0}, {1}, {2, 1}})) << "nobody has seen the first one";
}

TEST(Roster, WhoHasNoPlaceWaitsForTheNextOne) {
  Roster roster({{.is_tolerated = true, .restarts = 1}, tolerated}, 1);
  (void)roster.take_change();
  EXPECT_TRUE(roster.retire(0, "its host has 0 slots"));
  EXPECT_FALSE(roster.retire(0, "its host has 0 slots"));
  EXPECT_FALSE(roster.retire(1, "its host has 0 slots")) << "nobody would be left";
  EXPECT_THAT(roster.take_out(), ElementsAre(Pair(Life{0}, "its host has 0 slots")));
  EXPECT_EQ(roster.view(), view(2, {{1}}));
  EXPECT_FALSE(roster.begin(0)) << "its process has not ended";
  EXPECT_EQ(roster.note_failure(0, "was killed"), Answer::goes_on) << "it is not started again";
  EXPECT_TRUE(roster.begin(0));
  EXPECT_EQ(roster.life(0), (Life{0, 1}));
  EXPECT_EQ(roster.note_failure(0, "died"), Answer::starts_again) << "of which it has all its restarts";
  EXPECT_FALSE(Roster({needed, needed}, 1).retire(0, "")) << "it may not be done without";
}

}  // namespace
}  // namespace lockstep::launch
