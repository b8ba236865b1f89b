#include "lockstep/group/once_per_host.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <latch>
#include <numeric>
#include <stdexcept>

#include "lockstep/group/collectives.h"
#include "lockstep/group/impl.h"
#include "lockstep/group/threads_test.h"

namespace lockstep {
namespace {

using test::failure_of;
using test::on_ranks;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

/// Ranks 0, 1 and ranks 2, 3 take each other for ranks of another host.
void part_in_two_hosts(Group& group) {
  PerRank<HostPlace> places;
  for (int rank = 0; rank < 4; ++rank) {
    const int host = rank / 2;
    places.push_back({.host = host, .page = host == group.rank() / 2 ? rank % 2 : -1});
  }
  group.impl().members = Members(group.rank(), {0, 1, 2, 3}, places);
}

TEST(OncePerHost, RunsOnOneRankBeforeAnyOtherGoesOn) {
  std::atomic<int> runs = 0;
  on_ranks(4, [&](Group& group) {
    once_per_host(group, [&] {
      EXPECT_EQ(group.rank(), 0);
      ++runs;
    });
    EXPECT_EQ(runs.load(), 1);
  });
}

TEST(OncePerHost, RunsOnTheFirstRankOfEachHostBeforeAnyRankGoesOn) {
  std::array<std::atomic<int>, 4> runs{};
  on_ranks(4, [&](Group& group) {
    part_in_two_hosts(group);
    once_per_host(group, [&] { ++runs.at(static_cast<std::size_t>(group.rank())); });
    EXPECT_EQ(runs[0].load(), 1);
    EXPECT_EQ(runs[1].load(), 0);
    EXPECT_EQ(runs[2].load(), 1);
    EXPECT_EQ(runs[3].load(), 0);
  });
}

TEST(OncePerHost, ThrowsOnAllRanksWhatItThrewOnOne) {
  on_ranks(4, [&](Group& group) {
    part_in_two_hosts(group);
    const auto fail_on_2 = [&] {
      if (group.rank() == 2) throw Error(ErrorCode::corrupt_data, "archive.tar.gz is truncated\nand more");
    };
    try {
      once_per_host(group, fail_on_2);
      ADD_FAILURE() << "nothing was thrown";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::corrupt_data);
      EXPECT_EQ(error.peer(), 2);
      EXPECT_THAT(error.what(), StartsWith("once_per_host: rank 2 failed on host "));
      EXPECT_THAT(error.what(), ::testing::EndsWith(": archive.tar.gz is truncated"));
    }
    std::vector<int> sum{1};
    all_reduce(group, sum).wait();
    EXPECT_THAT(sum, ElementsAre(4)) << "the group works as before";
  });
}

TEST(OncePerHost, NamesTheLowestRankWhereSeveralFail) {
  on_ranks(4, [&](Group& group) {
    part_in_two_hosts(group);
    const auto text =
        failure_of([&] { once_per_host(group, [] { throw std::runtime_error("no route to the server"); }); },
                   ErrorCode::system);
    EXPECT_THAT(text, StartsWith("once_per_host: rank 0 failed on host "));
    EXPECT_THAT(text, HasSubstr(": no route to the server"));
  });
}

TEST(OncePerHost, NamesRanksOfTheWorldInASubgroup) {
  on_ranks(3, [&](Group& world) {
    if (world.rank() == 0) return;
    const int members[] = {2, 1};
    const Group group = world.subgroup(members);
    const auto text = failure_of([&] { once_per_host(group, [] { throw 1; }); }, ErrorCode::system);
    EXPECT_THAT(text, StartsWith("once_per_host: rank 2 failed on host "));
    EXPECT_THAT(text, HasSubstr(": an exception that is no std::exception"));
  });
}

TEST(OncePerHost, WaitsNoLongerThanTheGroupsTimeOut) {
  std::latch timed_out(1);
  on_ranks(2,
           [&](Group& group) {
             if (group.rank() == 0) {
               try {
                 once_per_host(group, [&] { timed_out.wait(); });
               } catch (const Error& error) {  // or its next call throws it: rank 1 had arrived
                 EXPECT_EQ(error.code(), ErrorCode::timeout);
               }
               return;
             }
             const auto text = failure_of([&] { once_per_host(group, [] {}); }, ErrorCode::timeout);
             EXPECT_THAT(text, HasSubstr("rank 0 did not arrive within 200 ms"));
             timed_out.count_down();
           },
           {.timeout = std::chrono::milliseconds(200)});
}

TEST(OncePerHost, IsACallInAGroupOfOne) {
  EXPECT_THROW(once_per_host(Group(), [] { throw std::out_of_range("as it is"); }), std::out_of_range);
  int runs = 0;
  once_per_host(Group(), [&] { ++runs; });
  EXPECT_EQ(runs, 1);
}

}  // namespace
}  // namespace lockstep
