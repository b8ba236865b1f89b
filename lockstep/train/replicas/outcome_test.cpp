#include "lockstep/train/replicas/outcome.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>

#include "lockstep/train/tensor/ranks_test.h"

namespace lockstep {
namespace {

using testing::Each;
using testing::Field;

TEST(Outcome, OfRank0IsEverybodys) {
  std::atomic<int> runs = 0;
  const auto endings = test::run_ranks(3, [&](const Group& group) {
    on_rank_0(group, [&] { ++runs; });
    on_rank_0(group, [] { throw Error(ErrorCode::corrupt_data, "byte 7 is wrong"); });
  });
  EXPECT_EQ(runs, 1);
  EXPECT_THAT(endings, Each(Field(&test::Ending::text, "byte 7 is wrong")));
  EXPECT_THAT(endings, Each(Field(&test::Ending::code, ErrorCode::corrupt_data)));
}

TEST(Outcome, OfAllRanksIsThatOfTheLowestThatFailed) {
  std::atomic<int> runs = 0;
  const auto endings = test::run_ranks(4, [&](const Group& group) {
    on_every_rank(group, [&] { ++runs; });
    on_every_rank(group, [&] {
      if (group.rank() >= 2) throw std::runtime_error(std::to_string(group.rank()) + " fails\nat a place");
    });
  });
  EXPECT_EQ(runs, 4);
  EXPECT_THAT(endings, Each(Field(&test::Ending::text, "rank 2: 2 fails")));
  EXPECT_THAT(endings, Each(Field(&test::Ending::code, ErrorCode::system)));
}

TEST(Outcome, OfAFailureMayBeSeenBeforeItIsThrown) {
  test::on_ranks(2, [](const Group& group) {
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
