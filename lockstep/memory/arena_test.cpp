#include "lockstep/memory/arena.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <random>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/base/waits_test.h"

namespace lockstep {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;

constexpr std::size_t capacity = std::size_t{1} << 20;

std::shared_ptr<Arena> make_arena() { return std::make_shared<Arena>(HostRegion::create(2, capacity), 1); }

TEST(Arena, BlocksAreAlignedDistinctAndKnown) {
  const auto arena = make_arena();
  const auto first = arena->allocate(100);
  const auto second = arena->allocate(1);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(first.bytes().data()) % 64, 0U);
  EXPECT_EQ(arena->offset_of(first.bytes()), 0U);
  EXPECT_EQ(arena->offset_of(second.bytes()), 128U);
  std::byte elsewhere{};
  EXPECT_EQ(arena->offset_of({&elsewhere, 1}), std::nullopt);
  EXPECT_EQ(arena->offset_of({first.bytes().data(), capacity + 1}), std::nullopt);
}

TEST(Arena, UsesFreedMemoryAgainAndJoinsNeighbours) {
  const auto arena = make_arena();
  auto first = arena->allocate(capacity / 4);
  auto second = arena->allocate(capacity / 4);
  auto third = arena->allocate(capacity / 2);
  EXPECT_THROW(arena->allocate(1), Error);
  second = {};
  first = {};
  EXPECT_EQ(arena->offset_of(arena->allocate(capacity / 2).bytes()), 0U);
  third = {};
  EXPECT_EQ(arena->allocate(capacity).bytes().size(), capacity);
}

TEST(Arena, FullSaysHowLargeItIsAndHowToEnlargeIt) {
  const auto arena = make_arena();
  try {
    arena->allocate(capacity + 1);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_THAT(
        error.what(),
        HasSubstr(
            "the arena of 1048576 bytes a rank has no room for 1048577 more; set LOCKSTEP_ARENA_BYTES"));
  }
}

TEST(Arena, MemoryOutlivesTheArenasOwner) {
  auto arena = make_arena();
  const auto block = arena->allocate(64);
  arena.reset();
  std::memset(block.bytes().data(), 1, 64);
}

TEST(Arena, QuarantinedMemoryIsNeverUsedAgain) {
  const auto arena = make_arena();
  const auto before = arena->offset_of(arena->allocate(64).bytes());
  {
    const auto block = arena->allocate(64);
    EXPECT_EQ(arena->offset_of(block.bytes()), before);
    arena->quarantine();
  }
  EXPECT_NE(arena->offset_of(arena->allocate(64).bytes()), before);
}

TEST(Arena, QuarantinedBytesAreUsedAgainWhenNobodyCanWriteThere) {
  const auto arena = make_arena();
  bool is_one_over = false, is_other_over = false;
  const std::byte* place = nullptr;
  {
    const auto block = arena->allocate(1000);
    place = block.bytes().data();
    arena->quarantine(block.bytes().first(500), [&] { return is_one_over; });
    arena->quarantine(block.bytes().last(600), [&] { return is_other_over; });
  }
  EXPECT_NE(arena->allocate(1000).bytes().data(), place);
  is_one_over = true;
  EXPECT_NE(arena->allocate(1000).bytes().data(), place);
  is_other_over = true;
  const auto again = arena->allocate(1000);
  EXPECT_EQ(again.bytes().data(), place);
  EXPECT_FALSE(again.is_quarantined());
}

TEST(Arena, QuarantinedBytesAreNeverUsedAgainAndOthersAre) {
  const auto arena = make_arena();
  std::byte elsewhere[64];
  const std::byte* harmed = nullptr;
  const std::byte* other = nullptr;
  {
    const auto first = arena->allocate(128), second = arena->allocate(128);
    harmed = first.bytes().data();
    other = second.bytes().data();
    arena->quarantine(first.bytes().subspan(100, 4), nullptr);
    arena->quarantine(elsewhere, nullptr);
    arena->quarantine(std::span<const std::byte>(), nullptr);
    EXPECT_TRUE(first.is_quarantined());
    EXPECT_FALSE(second.is_quarantined());
  }
  const auto first = arena->allocate(128), second = arena->allocate(128);
  EXPECT_EQ(first.bytes().data(), other);
  EXPECT_NE(second.bytes().data(), harmed);
}

TEST(Arena, SurvivesThousandsOfRandomCallsFromSeveralThreads) {
  constexpr std::size_t most_bytes = 3000;
  const auto arena = make_arena();
  std::vector<std::thread> threads;
  for (unsigned seed = 0; seed < 3; ++seed) {
    threads.emplace_back([&, seed] {
      std::mt19937 random(seed);
      const std::vector<std::byte> own(most_bytes, static_cast<std::byte>(seed));
      std::vector<ArenaBlock> blocks(20);
      for (int round = 0; round < 3000; ++round) {
        auto& block = blocks[random() % blocks.size()];
        block = {};
        block = arena->allocate(random() % most_bytes);
        std::memset(block.bytes().data(), static_cast<int>(seed), block.bytes().size());
        for (const auto& other : blocks) {
          const auto bytes = other.bytes();
          ASSERT_TRUE(bytes.empty() || std::memcmp(bytes.data(), own.data(), bytes.size()) == 0);
        }
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(arena->allocate(capacity).bytes().size(), capacity) << "all pieces were joined again";
}

TEST(HostRegion, RefusesAFileThatIsNone) {
  EXPECT_THROW(HostRegion::attach(make_memfd("short", 100), 2), Error);
  EXPECT_THROW(HostRegion::attach(make_memfd("zeros", 1 << 20), 2), Error);
  const auto region = HostRegion::create(2, 4096);
  EXPECT_THROW(HostRegion::attach(UniqueFd(::dup(region->fd())), 3), Error);
  EXPECT_EQ(HostRegion::attach(UniqueFd(::dup(region->fd())), 2)->arena_bytes(), 4096U);
}

TEST(HostRegion, CannotBeMadeSmallerUnderThoseWhoHaveIt) {
  const auto region = HostRegion::create(2, 4096);
  const ControlPage page = ControlPage::create(2);
  for (const int fd : {region->fd(), page.fd()}) {
    struct stat before {};
    ASSERT_EQ(::fstat(fd, &before), 0);
    EXPECT_EQ(::ftruncate(fd, 0), -1);
    EXPECT_EQ(errno, EPERM);
    EXPECT_EQ(::ftruncate(fd, before.st_size + 4096), 0) << "larger harms nobody";
  }
}

TEST(HostRegion, ThatCanBeMadeSmallerIsNotTaken) {
  const auto region = HostRegion::create(2, 4096);
  const ControlPage page = ControlPage::create(2);
  const auto copy_of = [](int fd) {  // the same bytes, unsealed
    UniqueFd copy(::memfd_create("unsealed", MFD_CLOEXEC));
    const Mapping from = Mapping::of_file(fd, 1);
    EXPECT_EQ(::pwrite(copy.get(), from.data(), from.size(), 0), static_cast<ssize_t>(from.size()));
    return copy;
  };
  EXPECT_THAT(test::error_of([&] { (void)HostRegion::attach(copy_of(region->fd()), 2); }).what(),
              HasSubstr("not sealed against shrinking"));
  EXPECT_THAT(test::error_of([&] { (void)ControlPage::attach(copy_of(page.fd()), 2); }).what(),
              HasSubstr("not sealed against shrinking"));
}

TEST(HostRegion, HasArenasWhereHugePagesCanBe) {
  const auto region = HostRegion::create(2, (std::size_t{4} << 20) + 1);
  EXPECT_EQ(region->arena_bytes(), std::size_t{6} << 20) << "whole huge pages";
  const auto begin = reinterpret_cast<std::uintptr_t>(&region->first_cause());
  const auto from = [&](int rank) {
    return reinterpret_cast<std::uintptr_t>(region->arena(rank)) - (begin & ~std::uintptr_t{4095});
  };
  EXPECT_EQ(from(0) % huge_page_bytes, 0U);
  EXPECT_EQ(from(1) % huge_page_bytes, 0U);
}

TEST(HostRegion, RefusesArenasThatNoMachineHas) {
  EXPECT_THROW(HostRegion::create(2, most_arena_bytes + 1), Error);
}

TEST(FirstCause, IsDecidedOnceAndReadByAll) {
  const auto page = ControlPage::in_process(4);
  std::vector<std::thread> threads;
  std::atomic<int> winners = 0;
  for (int rank = 0; rank < 4; ++rank) {
    threads.emplace_back([&, rank] {
      winners +=
          page.first_cause().set({ErrorCode::peer_lost, rank, rank, "rank " + std::to_string(rank)}) ? 1 : 0;
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(winners, 1);
  const auto cause = page.first_cause().get();
  ASSERT_TRUE(cause);
  EXPECT_EQ(cause->text, "rank " + std::to_string(cause->culprit));
  EXPECT_EQ(cause->code, ErrorCode::peer_lost);
}

TEST(FirstCause, IsTheSameForAllWhoTryToSetItAtOnce) {
  for (int round = 0; round < 200; ++round) {
    const auto page = ControlPage::in_process(2);
    std::atomic<int> ready = 0;
    std::string seen[2];
    std::vector<std::thread> threads;
    for (int rank = 0; rank < 2; ++rank) {
      threads.emplace_back([&, rank] {
        ++ready;
        while (ready < 2) {
        }
        const std::string text(2000, rank == 0 ? 'a' : 'b');
        page.first_cause().set({ErrorCode::mismatch, rank, rank, text});
        const auto cause = page.first_cause().get();
        seen[rank] = cause ? cause->text : "nothing";
      });
    }
    for (auto& thread : threads) thread.join();
    const auto cause = page.first_cause().get();
    ASSERT_TRUE(cause);
    // Who reads while the other was put off amid its writing may see nothing, but never anything else.
    for (const std::string& text : seen) ASSERT_THAT(text, AnyOf(cause->text, "nothing"));
  }
}

TEST(ControlPage, RefusesAnotherVersionAndAnotherNumberOfRanks) {
  EXPECT_THROW(ControlPage::attach(make_memfd("zeros", 1 << 20), 0), Error);
  const auto page = ControlPage::create(3);
  EXPECT_THROW(ControlPage::attach(UniqueFd(::dup(page.fd())), 2), Error);
  EXPECT_EQ(ControlPage::attach(UniqueFd(::dup(page.fd())), 0).local_ranks(), 3);
}

}  // namespace
}  // namespace lockstep
