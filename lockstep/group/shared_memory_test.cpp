#include "lockstep/group/shared_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/group/collectives.h"
#include "lockstep/group/threads_test.h"

namespace lockstep {
namespace {

using test::on_ranks;

TEST(SharedMemory, IsSharedByAllRanksOfAHost) {
  EXPECT_FALSE(shares_memory(Group()));
  on_ranks(3, [](const Group& group) { EXPECT_TRUE(shares_memory(group)); });
}

TEST(SharedMemory, FindsWhatLiesInAnArenaFromEveryRank) {
  on_ranks(3, [](const Group& group) {
    const auto block = group.allocate<int>(10);
    block[3] = 100 + group.rank();
    const std::array<ArenaPlace, 1> mine = {place_of(group, std::as_bytes(block.span())).value()};
    EXPECT_EQ(mine[0].rank, group.rank());
    std::vector<ArenaPlace> all(3);
    all_gather_bytes(group, std::as_bytes(std::span(mine)), std::as_writable_bytes(std::span(all))).wait();
    for (int rank = 0; rank < 3; ++rank) {
      int found = 0;
      const auto bytes = memory_at(group, all[static_cast<std::size_t>(rank)], 10 * sizeof(int));
      std::memcpy(&found, bytes.data() + 3 * sizeof(int), sizeof found);
      EXPECT_EQ(found, 100 + rank);
    }
    barrier(group).wait();
  });
}

// Its ranks have other numbers in the one and in the other.
TEST(SharedMemory, OfAGroupIsThatOfGroupsThatAreMadeOfIt) {
  on_ranks(4, [](const Group& world) {
    const auto of_world = world.allocate<int>(100'000);
    if (world.rank() == 2) return barrier(world).wait();
    const int some[] = {3, 0, 1};
    const Group group = world.subgroup(some);
    const int others[] = {2, 0};
    const auto inner = group.rank() == 1 ? std::nullopt : std::optional(group.subgroup(others));
    const auto of_group = (inner ? *inner : group).allocate<int>(100'000);
    for (const auto& block : {of_world.span(), of_group.span()}) {
      for (const Group& one : {world, group, inner.value_or(group)}) {
        const auto place = place_of(one, std::as_bytes(block));
        ASSERT_TRUE(place);
        EXPECT_EQ(place->rank, one.rank());
        EXPECT_EQ(memory_at(one, *place, 4).data(), std::as_bytes(block).data());
      }
      std::ranges::fill(block, 1 + world.rank());
      all_reduce(group, block).wait();
      EXPECT_STREQ(group.recorder().collectives_since(0).back().algorithm, "arena");
      EXPECT_EQ(std::ranges::count(block, 1 + 2 + 4), 100'000);
    }
    barrier(world).wait();
  });
}

TEST(SharedMemory, OfACallThatFailedInOneGroupIsUsedByNoOtherUntilAllHaveLetGoOfIt) {
  on_ranks(2, [](const Group& world) {
    const int both[] = {0, 1};
    std::optional<Group> group = world.subgroup(both);
    auto in_the_call = world.allocate<int>(100'000), beside = world.allocate<int>(100'000);
    const std::array<const void*, 2> places = {in_the_call.span().data(), beside.span().data()};
    Work failing;
    if (world.rank() == 0) failing = all_reduce(*group, in_the_call.span());
    barrier(world).wait();
    if (world.rank() == 1) failing = barrier(*group);
    EXPECT_THROW(failing.wait(), Error);
    in_the_call = {};
    beside = {};
    const auto is_used_next = [&world](const void* place) {
      std::vector<ArenaBuffer<int>> next;
      for (int i = 0; i < 3; ++i) next.push_back(world.allocate<int>(100'000));
      return std::ranges::any_of(next, [&](const auto& one) { return one.span().data() == place; });
    };
    if (world.rank() == 0) {
      failing = {};
      group.reset();
      EXPECT_FALSE(is_used_next(places[0]));
    }
    EXPECT_TRUE(is_used_next(places[1]));
    all_reduce(world, world.allocate<int>(100'000).span()).wait();  // which goes on
    failing = {};
    group.reset();
    barrier(world).wait();
    EXPECT_TRUE(is_used_next(places[0]));
  });
}

TEST(SharedMemory, KnowsWhatLiesElsewhere) {
  on_ranks(2, [](const Group& group) {
    const std::array<std::byte, 8> on_the_stack{};
    EXPECT_FALSE(place_of(group, on_the_stack));
    EXPECT_THROW((void)memory_at(group, {2, 0}, 8), Error);
    EXPECT_THROW((void)memory_at(group, {-1, 0}, 8), Error);
    EXPECT_THROW((void)memory_at(group, {0, SIZE_MAX}, 8), Error);
    EXPECT_THROW((void)memory_at(group, {0, 8}, SIZE_MAX), Error);
  });
}

TEST(SharedBlock, IsOneForAllRanks) {
  on_ranks(3, [](const Group& group) {
    const SharedBlock block(group, 3);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(block.bytes().data()) % 64, 0U);
    block.bytes()[static_cast<std::size_t>(group.rank())] = std::byte{7};
    barrier(group).wait();
    for (const std::byte byte : block.bytes()) EXPECT_EQ(byte, std::byte{7});
    barrier(group).wait();
  });
}

TEST(SharedBlock, IsOrdinaryMemoryAlone) {
  const SharedBlock block(Group(), 100);
  EXPECT_EQ(block.bytes().size(), 100U);
}

TEST(SharedBlock, StaysTheOthersWhenItsOwnerLetsGo) {
  on_ranks(2, [](const Group& group) {
    constexpr std::size_t bytes = 1 << 16;
    auto block = std::make_unique<SharedBlock>(group, bytes);
    if (group.rank() == 1) std::memset(block->bytes().data(), 5, bytes);
    barrier(group).wait();
    if (group.rank() == 0) {
      block.reset();
      const auto other = group.allocate<std::byte>(bytes);  // would be the same memory
      std::memset(other.data(), 9, bytes);
      barrier(group).wait();
    } else {
      barrier(group).wait();
      for (const std::byte byte : block->bytes()) ASSERT_EQ(byte, std::byte{5});
    }
  });
}

TEST(SharedBlock, IsUsedAgainWhenTheLastRankHasLetGo) {
  on_ranks(2, [](const Group& group) {
    const void* first = nullptr;
    for (int round = 0; round < 3; ++round) {
      auto block = std::make_unique<SharedBlock>(group, 1 << 20);
      if (round == 0) first = block->bytes().data();
      EXPECT_EQ(block->bytes().data(), first) << round;
      barrier(group).wait();
      if (group.rank() == 0) block.reset();  // before the other rank
      barrier(group).wait();
      block.reset();
      barrier(group).wait();
    }
  });
}

TEST(SharedBlock, SaysOnAllRanksThatThereIsNoRoom) {
  on_ranks(2, [](const Group& group) {
    try {
      const SharedBlock block(group, SIZE_MAX / 4);
      ADD_FAILURE() << "no error";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr(group.rank() == 0 ? "bytes" : "rank 0 has no room for"));
    }
  });
}

}  // namespace
}  // namespace lockstep
