// Groups over ranks that are threads: how they are made, overlap, and are used by several threads; and calls
// that are put together.
#include "lockstep/group/group.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <latch>
#include <thread>

#include "lockstep/group/collectives.h"
#include "lockstep/group/grouped.h"
#include "lockstep/group/threads_test.h"

namespace lockstep {
namespace {

using test::failure_of;
using test::on_ranks;
using ::testing::ContainsRegex;
using ::testing::Each;
using ::testing::HasSubstr;

TEST(Groups, OverlapAndCompleteWhenSubmittedInOppositeOrders) {
  on_ranks(2, [](Group& world) {
    const int both[] = {0, 1};
    Group first = world.subgroup(both);
    Group second = world.subgroup(both);
    EXPECT_NE(first.name(), second.name());
    for (const std::size_t count : {4UL, 40'000UL}) {
      std::vector<float> a(count, 1.0F), b(count, 2.0F);
      // One thread a rank; rank 0 submits to the first group first, rank 1 to the second.
      Work works[2];
      const auto submit = [&](int which) {
        works[which] = which == 0 ? all_reduce(first, a) : all_reduce(second, b);
      };
      submit(world.rank());
      submit(1 - world.rank());
      works[world.rank()].wait();
      works[1 - world.rank()].wait();
      EXPECT_EQ(a.back(), 2.0F);
      EXPECT_EQ(b.back(), 4.0F);
    }
  });
}

TEST(Groups, OfSomeRanksRenumberThem) {
  on_ranks(4, [](Group& world) {
    if (world.rank() == 0) return;
    const int members[] = {3, 1, 2};
    Group group = world.subgroup(members);
    EXPECT_EQ(group.size(), 3);
    EXPECT_EQ(group.world_rank(group.rank()), world.rank());
    std::vector<std::int32_t> all(3);
    const std::vector<std::int32_t> mine{world.rank()};
    all_gather(group, mine, all).wait();
    EXPECT_EQ(all, (std::vector<std::int32_t>{3, 1, 2}));
  });
}

/// The world ranks of a group's members, in its order.
std::vector<int> members(const Group& group) {
  std::vector<int> ranks;
  for (int rank = 0; rank < group.size(); ++rank) ranks.push_back(group.world_rank(rank));
  return ranks;
}

TEST(Split, PutsEqualColoursTogetherInTheOrderOfKeys) {
  on_ranks(5, [](Group& world) {
    const int colour = world.rank() % 2 == 0 ? 7 : -3;
    const auto group = world.split(colour, world.rank() == 4 ? -1 : 5);
    ASSERT_TRUE(group);
    EXPECT_EQ(members(*group), world.rank() % 2 == 0 ? (std::vector{4, 0, 2}) : (std::vector{1, 3}));
    EXPECT_EQ(group->world_rank(group->rank()), world.rank());
    std::vector<int> sum{world.rank()};
    all_reduce(*group, sum).wait();
    EXPECT_EQ(sum[0], world.rank() % 2 == 0 ? 6 : 4);
  });
}

TEST(Split, LeavesOutWhoHasNoColour) {
  on_ranks(3, [](Group& world) {
    const auto group = world.split(world.rank() == 1 ? std::nullopt : std::optional(0));
    EXPECT_EQ(group.has_value(), world.rank() != 1);
    if (group) {
      EXPECT_EQ(members(*group), (std::vector{0, 2}));
    }
  });
}

TEST(Split, OfAWorldOfOneIsThatWorld) {
  const Group world;
  const auto group = world.split(1);
  ASSERT_TRUE(group);
  EXPECT_EQ(group->size(), 1);
  EXPECT_FALSE(world.split(std::nullopt));
}

TEST(Groups, WorkAtOnceFromSeveralThreads) {
  on_ranks(3, [](Group& world) {
    const std::vector<int> everybody{0, 1, 2};
    std::vector<Group> groups;
    for (int made = 0; made < 3; ++made) groups.push_back(world.subgroup(everybody));
    std::vector<std::thread> threads;
    for (const Group& group : groups) {
      threads.emplace_back([&group] {
        for (int round = 0; round < 50; ++round) {
          for (const std::size_t count : {3UL, 3000UL, 200'000UL / 16}) {
            std::vector<int> values(count, round);
            all_reduce(group, values).wait();
            ASSERT_THAT(values, Each(3 * round));
          }
        }
      });
    }
    for (auto& thread : threads) thread.join();
  });
}

TEST(Groups, ServeSeveralThreadsThatSubmitInOneOrder) {
  on_ranks(3, [](Group& world) {
    constexpr int rounds = 50;
    std::atomic<int> turn = 0;  // the calls so far, by one thread and the other in turns
    const auto submit = [&](int thread) {
      for (int round = thread; round < rounds; round += 2) {
        std::vector<int> values(round % 3 == 0 ? 30'000UL : 3UL, round);
        for (int now = turn; now != round; now = turn) turn.wait(now);
        Work work = all_reduce(world, values);
        turn = round + 1;
        turn.notify_all();
        work.wait();
        EXPECT_THAT(values, Each(3 * round));
      }
    };
    std::thread other([&] { submit(1); });
    submit(0);
    other.join();
    EXPECT_EQ(turn, rounds);
  });
}

// Works of all kinds under way at once; those that share staging memory must not meet in it.
TEST(Works, ManyAtOnceDoNotDisturbEachOther) {
  on_ranks(4, [](Group& world) {
    constexpr std::size_t sizes[] = {5, 700, 40'000, 300'000, 5000};
    for (unsigned round = 0; round < 6; ++round) {
      std::vector<std::vector<int>> buffers;
      std::vector<ArenaBuffer<int>> shared;
      std::vector<Work> works;
      for (std::size_t index = 0; index < 20; ++index) {
        const std::size_t size = sizes[(index * 7 + round) % std::size(sizes)];
        const int mine = world.rank() + static_cast<int>(index);
        buffers.emplace_back(size, mine);
        shared.push_back(world.allocate<int>(index % 4 == 3 ? size : 0));
        std::fill(shared.back().begin(), shared.back().end(), mine);
      }
      for (std::size_t index = 0; index < buffers.size(); ++index) {
        if (index % 4 == 3) {
          works.push_back(all_reduce(world, shared[index]));
        } else if (index % 4 == 2) {
          works.push_back(broadcast(world, buffers[index], static_cast<int>(index % 3)));
        } else {
          works.push_back(all_reduce(world, buffers[index]));
        }
      }
      for (std::size_t index = works.size(); index-- > 0;) works[(index * 3 + round) % works.size()].wait();
      for (std::size_t index = 0; index < buffers.size(); ++index) {
        const int number = static_cast<int>(index);
        const std::span<const int> found =
            index % 4 == 3 ? shared[index].span() : std::span<const int>(buffers[index]);
        const int expected = index % 4 == 2 ? number % 3 + number : 6 + 4 * number;
        ASSERT_THAT(found, Each(expected)) << "work " << index << " of round " << round;
      }
    }
  });
}

TEST(Grouped, AllReducesBuffersOfAllSizes) {
  for (const int ranks : {1, 3}) {
    on_ranks(ranks, [&](Group& world) {
      std::vector<std::vector<float>> buffers;
      for (const std::size_t count : {0, 1, 17, 1000, 50'000, 3}) {
        buffers.emplace_back(count, static_cast<float>(world.rank() + 1));
      }
      const float sum = ranks == 1 ? 1 : 6;
      all_reduce_grouped(world, buffers).wait();
      for (const auto& buffer : buffers) EXPECT_THAT(buffer, Each(sum));
      auto work = all_reduce_grouped(world, buffers, ReduceOp::average);
      while (!work.test()) world.poll();
      for (const auto& buffer : buffers) EXPECT_THAT(buffer, Each(sum));
    });
  }
}

TEST(Grouped, TellsAMismatchOfSizes) {
  on_ranks(2, [](Group& world) {
    std::vector<std::vector<float>> buffers{std::vector<float>(3),
                                            std::vector<float>(world.rank() == 0 ? 4 : 5)};
    EXPECT_THAT(failure_of([&] { all_reduce_grouped(world, buffers).wait(); }, ErrorCode::mismatch),
                HasSubstr("rank 0 called all_reduce_grouped (sum of f32 x 7) as #0, rank 1 called"));
  });
}

TEST(Grouped, TellsAMismatchOfSizesThatAddUpToTheSame) {
  for (const auto& [one, other] : {std::pair{3, 4}, std::pair{3, 100'000}}) {
    on_ranks(2, [one = one, other = other](Group& world) {
      std::vector<std::vector<float>> buffers{std::vector<float>(static_cast<std::size_t>(one)),
                                              std::vector<float>(static_cast<std::size_t>(other))};
      if (world.rank() == 1) std::swap(buffers[0], buffers[1]);
      EXPECT_THAT(failure_of([&] { all_reduce_grouped(world, buffers).wait(); }, ErrorCode::mismatch),
                  HasSubstr("(they differ in their counts)"));
    });
  }
}

TEST(Groups, AreClosedForAllByARankThatCannotGoOn) {
  on_ranks(3, [](Group& world) {
    const auto fails = [&] { return failure_of([&] { barrier(world).wait(); }, ErrorCode::peer_lost); };
    const auto says =
        ContainsRegex("barrier #[12] in group \"world\": rank 1 gave up: no such file; the group is closed");
    barrier(world).wait();
    if (world.rank() == 1) {
      world.abort("no such file");
      world.abort("it is too late for another reason");
    }
    EXPECT_THAT(fails(), says);
    EXPECT_THAT(fails(), says);
  });
  Group().abort("nobody waits");
  barrier(Group()).wait();
}

TEST(Groups, ThatAreClosedBecauseOfAnothersFailureBlameWhomThatBlamed) {
  on_ranks(3, [](Group& world) {
    if (world.rank() == 2) return;
    const Group pair = world.subgroup(std::vector{0, 1});
    if (world.rank() == 0) pair.abort(Error(ErrorCode::timeout, "rank 2 did not arrive", 2));
    for (int call = 0; call < 2; ++call) {
      try {
        barrier(pair).wait();
        FAIL() << "nothing was thrown";
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::timeout);
        EXPECT_EQ(error.peer(), 2);
        EXPECT_THAT(error.what(), HasSubstr("rank 0 gave up: rank 2 did not arrive; the group is closed"));
      }
    }
  });
}

TEST(Groups, ThatAreClosedBecauseOfAnExceptionThatBlamesNobodyBlameTheRank) {
  on_ranks(2, [](Group& world) {
    if (world.rank() == 1) world.abort(Error(ErrorCode::timeout, "it took too long"));
    EXPECT_THAT(failure_of([&] { barrier(world).wait(); }, ErrorCode::peer_lost),
                HasSubstr("rank 1 gave up: it took too long"));
  });
}

TEST(Messages, ThatNobodyReceivesAreBounded) {
  on_ranks(1, [](Group& world) {
    const std::vector<std::byte> megabytes(100 << 20);
    send(world, megabytes, 0, 1).wait();
    send(world, megabytes, 0, 1).wait();
    EXPECT_THAT(failure_of([&] { send(world, megabytes, 0, 1).wait(); }, ErrorCode::invalid_argument),
                HasSubstr("raise LOCKSTEP_MAILBOX_BYTES (268435456)"));
  });
}

TEST(MessagesToItself, AreNotWaitedForForEver) {
  for (const int ranks : {1, 2}) {
    std::latch sent(ranks);  // the first time-out closes the group for all
    on_ranks(ranks,
             [&](Group& group) {
               std::vector<int> value(1);
               send(group, value, group.rank(), 7).wait();
               sent.arrive_and_wait();
               const auto text =
                   failure_of([&] { recv(group, value, group.rank(), 8).wait(); }, ErrorCode::timeout);
               EXPECT_THAT(text, HasSubstr("waited for a message of its own, 300 ms long: it has to send it "
                                           "before it waits, or by another thread; messages that nobody "
                                           "receives: tag 7 from rank"));
             },
             {.timeout = std::chrono::milliseconds(300)});
  }
}

}  // namespace
}  // namespace lockstep
