#include "lockstep/launch/stragglers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::launch {
namespace {

using std::chrono::seconds;
using ::testing::IsEmpty;

class StragglersTest : public ::testing::Test {
 protected:
  /// A look so many seconds after the first one.
  std::string look(int second, const std::vector<int>& ended, const std::vector<Straggler>& left) {
    return stragglers_.look(ended, left, begin_ + seconds(second));
  }
  static Straggler running(int rank) { return {.rank = rank, .pid = 100 + rank}; }
  static Straggler stopped(int rank) { return {.rank = rank, .pid = 100 + rank, .is_stopped = true}; }

  const Stragglers::Time begin_ = Deadline::Clock::now();
  Stragglers stragglers_{StragglerLimits{}};
};

TEST_F(StragglersTest, ThatRunOnAreNamedOnce) {
  const std::vector<Straggler> left = {running(1), running(2)};
  EXPECT_THAT(look(0, {0}, left), IsEmpty());
  EXPECT_THAT(look(29, {0}, left), IsEmpty());
  EXPECT_EQ(look(30, {0}, left), "ranks 1-2 still run, 30 s after rank 0 has ended with exit code 0\n");
  EXPECT_THAT(look(60, {0}, left), IsEmpty());
  EXPECT_THAT(look(120, {0, 1}, {running(2)}), IsEmpty());
  EXPECT_FALSE(stragglers_.given_up());
}

TEST_F(StragglersTest, ThatRunOnHaveAllTheTimeAfterEachEnd) {
  EXPECT_THAT(look(0, {0}, {running(1), running(2)}), IsEmpty());
  EXPECT_THAT(look(29, {0, 2}, {running(1)}), IsEmpty());
  EXPECT_THAT(look(58, {0, 2}, {running(1)}), IsEmpty());
  EXPECT_EQ(look(59, {0, 2}, {running(1)}),
            "rank 1 still runs, 30 s after ranks 0, 2 have ended with exit code 0\n");
}

TEST_F(StragglersTest, ThatAreStoppedAreNamedAndGivenUp) {
  const std::vector<Straggler> left = {running(1), stopped(2)};
  EXPECT_THAT(look(0, {0}, left), IsEmpty());
  EXPECT_EQ(
      look(3, {0}, left),
      "rank 2 (pid 102) has been stopped (as by SIGSTOP) for 3 s, and rank 0 has ended with exit code 0; "
      "`kill -CONT 102` lets it go on; after 600 s (LOCKSTEP_TIMEOUT) it is ended\n");
  EXPECT_THAT(look(4, {0}, left), IsEmpty());
  look(700, {0}, left);
  EXPECT_FALSE(stragglers_.given_up()) << "rank 1 may still do something";
  look(701, {0, 1}, {stopped(2)});
  ASSERT_TRUE(stragglers_.given_up());
  EXPECT_EQ(stragglers_.given_up()->who.rank, 2);
  EXPECT_EQ(stragglers_.given_up()->since, seconds(701));
}

TEST_F(StragglersTest, OfWhichOneWasStoppedLaterAreGivenUpWithIt) {
  look(0, {0}, {stopped(1), running(2)});
  look(100, {0}, {stopped(1), stopped(2)});
  look(699, {0}, {stopped(1), stopped(2)});
  EXPECT_FALSE(stragglers_.given_up());
  look(700, {0}, {stopped(1), stopped(2)});
  ASSERT_TRUE(stragglers_.given_up());
  EXPECT_EQ(stragglers_.given_up()->who.rank, 1);
}

TEST_F(StragglersTest, ThatGoOnAreAsIfTheyHadNeverStopped) {
  look(0, {0}, {stopped(1)});
  look(599, {0}, {running(1)});
  look(600, {0}, {stopped(1)});
  look(1199, {0}, {stopped(1)});
  EXPECT_FALSE(stragglers_.given_up());
  look(1200, {0}, {stopped(1)});
  EXPECT_TRUE(stragglers_.given_up());
}

TEST_F(StragglersTest, AreForgottenWhileTheUserHasStoppedTheJob) {
  look(0, {0}, {stopped(1)});
  stragglers_.forget();
  EXPECT_THAT(look(600, {0}, {stopped(1)}), IsEmpty());
  EXPECT_FALSE(stragglers_.given_up());
  EXPECT_THAT(look(602, {0}, {running(1)}), IsEmpty());
}

TEST_F(StragglersTest, AreWaitedForForEverWhereThereIsNoTimeout) {
  Stragglers patient({.given_up = std::chrono::nanoseconds::max()});
  const std::vector<int> ended = {0};
  const std::vector<Straggler> left = {stopped(1)};
  patient.look(ended, left, begin_);
  EXPECT_EQ(patient.look(ended, left, begin_ + std::chrono::hours(10'000)),
            "rank 1 (pid 101) has been stopped (as by SIGSTOP) for 3.6e+07 s, and rank 0 has ended with exit "
            "code 0; `kill -CONT 101` lets it go on\n");
  EXPECT_FALSE(patient.given_up());
}

}  // namespace
}  // namespace lockstep::launch
