#include "lockstep/group/outcome.h"

#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>

#include "lockstep/group/threads_test.h"

namespace lockstep {
namespace {

using test::failure_of;
using test::on_ranks;

TEST(Outcome, OfRank0IsEverybodys) {
  std::atomic<int> runs = 0;
  on_ranks(3, [&](const Group& group) {
    on_rank_0(group, [&] { ++runs; });
    const auto fail = [] { throw Error(ErrorCode::corrupt_data, "byte 7 is wrong\nas is byte 8", 2); };
    try {
      on_rank_0(group, fail);
      ADD_FAILURE() << "nothing was thrown";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::corrupt_data);
      EXPECT_STREQ(error.what(), "byte 7 is wrong\nas is byte 8");
      EXPECT_EQ(error.peer(), 2);
    }
  });
  EXPECT_EQ(runs, 1);
}

TEST(Outcome, OfAllRanksIsThatOfTheLowestThatFailed) {
  std::atomic<int> runs = 0;
  on_ranks(4, [&](const Group& group) {
    on_every_rank(group, [&] { ++runs; });
    const auto fail = [&] {
      if (group.rank() >= 2) throw std::runtime_error(std::to_string(group.rank()) + " fails\nat a place");
    };
    EXPECT_EQ(failure_of([&] { on_every_rank(group, fail); }, ErrorCode::system), "rank 2: 2 fails");
  });
  EXPECT_EQ(runs, 4);
}

TEST(Outcome, OfWhatIsNoStdExceptionIsEverybodysToo) {
  on_ranks(2, [](const Group& group) {
    EXPECT_EQ(failure_of([&] { on_rank_0(group, [] { throw 1; }); }, ErrorCode::system),
              "an exception that is no std::exception");
  });
}

TEST(Outcome, OfAFailureMayBeSeenBeforeItIsThrown) {
  on_ranks(2, [](const Group& group) {
    const auto nothing = [] {};
    const auto failing = [] { throw Error(ErrorCode::unsupported, "no"); };
    EXPECT_FALSE(failure_on_rank_0(group, nothing));
    EXPECT_FALSE(failure_on_any_rank(group, nothing));
    EXPECT_STREQ(failure_on_rank_0(group, failing).value().what(), "no");
    EXPECT_STREQ(failure_on_any_rank(group, failing).value().what(), "rank 0: no");
  });
}

TEST(Outcome, AloneSaysNoRank) {
  const auto failure = failure_on_any_rank(Group(), [] { throw Error(ErrorCode::system, "no"); });
  EXPECT_STREQ(failure.value().what(), "no");
}

}  // namespace
}  // namespace lockstep
