// What is still used after its end: a group that failed, a work or a buffer whose group is gone.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <latch>

#include "lockstep/group/grouped.h"
#include "lockstep/group/reproducible.h"
#include "lockstep/group/threads_test.h"

namespace lockstep {
namespace {

using test::failure_of;
using test::on_ranks;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

/// Makes the group fail on both ranks.
void fail(const Group& group) {
  std::vector<float> values(group.rank() == 0 ? 100UL : 200UL);
  failure_of([&] { all_reduce(group, values).wait(); }, ErrorCode::mismatch);
}

TEST(UseAfterAnError, OfEveryCollectiveThrowsTheFirstCause) {
  on_ranks(2, [](Group& group) {
    fail(group);
    std::vector<float> one(4), both(8);
    const std::array<std::size_t, 2> counts{4, 4};
    std::vector<std::span<float>> buffers{one, both};
    const auto first_cause =
        AllOf(HasSubstr("f32 x 100"), HasSubstr("f32 x 200"), HasSubstr("the group is closed"));
    const std::function<Work()> calls[] = {
        [&] { return barrier(group); },
        [&] { return all_reduce(group, one); },
        [&] { return all_reduce_grouped(group, buffers); },
        [&] { return reduce(group, one, one, 0); },
        [&] { return reduce_scatter(group, both, one); },
        [&] { return reduce_scatter_v(group, both, counts, one); },
        [&] { return broadcast(group, one, 1); },
        [&] { return scatter(group, both, one, group.rank()); },
        [&] { return gather(group, one, both, group.rank()); },
        [&] { return all_gather(group, one, both); },
        [&] { return all_gather_v(group, one, both, counts); },
        [&] { return all_to_all(group, both, std::vector<float>(8)); },
        [&] { return send(group, one, 1 - group.rank()); },
        [&] { return recv(group, one, 1 - group.rank()); },
    };
    for (const auto& call : calls)
      EXPECT_THAT(failure_of([&] { call().wait(); }, ErrorCode::mismatch), first_cause);
    const std::vector<std::span<const float>> inputs{one};
    const auto reproducible = [&] { reproducible_all_reduce(group, inputs, std::span(one)); };
    EXPECT_THAT(failure_of(reproducible, ErrorCode::mismatch), first_cause);
    EXPECT_THAT(failure_of([&] { (void)group.split(0); }, ErrorCode::mismatch), first_cause);
  });
}

TEST(UseAfterAnError, OnAnotherRankThrowsAtOnce) {
  std::latch failed(1);
  on_ranks(2,
           [&](Group& group) {
             std::vector<float> value(1);
             if (group.rank() == 1) {
               failure_of([&] { recv(group, value, 0).wait(); }, ErrorCode::timeout);
               failed.count_down();
               return;
             }
             failed.wait();
             EXPECT_THAT(failure_of([&] { static_cast<void>(send(group, value, 1)); }, ErrorCode::timeout),
                         HasSubstr("rank 0 did not arrive within 200 ms; the group is closed"));
           },
           {.timeout = std::chrono::milliseconds(200)});
}

TEST(UseAfterAnError, OfOtherGroupsGoesOn) {
  on_ranks(2, [](Group& world) {
    const int both[] = {0, 1};
    const Group other = world.subgroup(both);
    fail(world);
    std::vector<int> values{1};
    all_reduce(other, values).wait();
    EXPECT_EQ(values[0], 2);
    const Group made_afterwards = world.subgroup(both);
    all_reduce(made_afterwards, values).wait();
    EXPECT_EQ(values[0], 4);
  });
}

TEST(UseAfterAnError, OfTheArenaGivesMemoryThatNobodyElseWrites) {
  on_ranks(2, [](Group& group) {
    const auto kept = group.allocate<float>(1000);
    std::fill(kept.begin(), kept.end(), 3.0F);
    auto freed_later = group.allocate<float>(1000);
    const float* const freed = freed_later.data();
    fail(group);
    freed_later = ArenaBuffer<float>();
    EXPECT_NE(group.allocate<float>(1000).data(), freed) << "a rank that was stopped may still write there";
    EXPECT_THAT(kept.span(), Each(3.0F));
  });
}

TEST(UseAfterTheGroupsEnd, OfABufferIsThatOfOrdinaryMemory) {
  on_ranks(2, [](Group& world) {
    const int both[] = {0, 1};
    ArenaBuffer<float> buffer;
    {
      const Group group = world.subgroup(both);
      buffer = group.allocate<float>(30'000);
      std::fill(buffer.begin(), buffer.end(), 1.0F);
      all_reduce(group, buffer).wait();
    }
    EXPECT_THAT(buffer.span(), Each(2.0F));
    all_reduce(world, buffer).wait();
    EXPECT_THAT(buffer.span(), Each(4.0F));
  });
}

TEST(UseAfterTheGroupsEnd, OfAWorkWaitsForItAllTheSame) {
  on_ranks(2, [](Group& world) {
    const int both[] = {0, 1};
    std::vector<float> values(30'000, 1.0F);
    Work work;
    {
      const Group group = world.subgroup(both);
      work = all_reduce(group, values);
    }
    work.wait();
    EXPECT_THAT(values, Each(2.0F));
    barrier(world).wait();
  });
}

TEST(UseAfterTheGroupsEnd, OfASubgroupKeepsItsWorld) {
  on_ranks(2, [](Group& world) {
    const int both[] = {0, 1};
    const Group group = world.subgroup(both);
    world = Group();
    std::vector<int> values{1};
    all_reduce(group, values).wait();
    EXPECT_EQ(values[0], 2);
  });
}

TEST(MovedFrom, BuffersHaveNoElements) {
  on_ranks(2, [](Group& group) {
    auto buffer = group.allocate<float>(100);
    std::fill(buffer.begin(), buffer.end(), 1.0F);
    const auto moved = std::move(buffer);
    EXPECT_EQ(buffer.size(), 0U);  // NOLINT(bugprone-use-after-move)
    all_reduce(group, buffer).wait();
    all_reduce(group, moved).wait();
    EXPECT_THAT(moved.span(), Each(2.0F));
  });
}

TEST(MovedFrom, WorksAreOver) {
  on_ranks(2, [](Group& group) {
    std::vector<float> values(1000, 1.0F);
    Work work = all_reduce(group, values);
    Work moved = std::move(work);
    EXPECT_TRUE(work.test());  // NOLINT(bugprone-use-after-move)
    work.wait();
    moved.wait();
    moved.wait();
    EXPECT_THAT(values, Each(2.0F));
  });
}

TEST(Allocation, OfMoreElementsThanThereCanBeIsRefused) {
  on_ranks(2, [](Group& group) {
    for (const Group& one : {group, Group()}) {
      for (const std::size_t elements : {SIZE_MAX / 4 + 2, SIZE_MAX / 2, SIZE_MAX}) {
        EXPECT_THAT(failure_of([&] { (void)one.allocate<float>(elements); }, ErrorCode::invalid_argument),
                    HasSubstr("elements of 4 bytes"))
            << elements;
      }
    }
  });
}

}  // namespace
}  // namespace lockstep
