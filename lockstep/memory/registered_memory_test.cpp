#include "lockstep/memory/registered_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/memory/arena.h"
#include "lockstep/memory/page_swap.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

constexpr std::size_t page_size = 4096;
constexpr std::size_t arena_bytes = std::size_t{8} << 20;

/// Pages of the program's own.
class Pages {
 public:
  explicit Pages(std::size_t count) : bytes_(mapped(nullptr, count * page_size, 0), count * page_size) {}
  ~Pages() {
    if (!bytes_.empty()) ::munmap(bytes_.data(), bytes_.size());
  }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  std::span<std::byte> bytes() const { return bytes_; }
  /// Frees them, and has others at the same place, which are zero.
  void replace() { (void)mapped(bytes_.data(), bytes_.size(), MAP_FIXED); }
  /// Moves them; whoever has the old address has nothing.
  void move() {
    std::byte* const elsewhere = mapped(nullptr, bytes_.size(), 0);
    void* const moved =
        ::mremap(bytes_.data(), bytes_.size(), bytes_.size(), MREMAP_MAYMOVE | MREMAP_FIXED, elsewhere);
    EXPECT_NE(moved, MAP_FAILED);
    bytes_ = {static_cast<std::byte*>(moved), bytes_.size()};
  }

 private:
  static std::byte* mapped(std::byte* place, std::size_t bytes, int flags) {
    void* const made =
        ::mmap(place, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
    EXPECT_NE(made, MAP_FAILED);
    return static_cast<std::byte*>(made);
  }
  std::span<std::byte> bytes_;
};

void fill(std::span<std::byte> bytes, int first) {
  for (std::size_t i = 0; i < bytes.size(); ++i)
    bytes[i] = static_cast<std::byte>(static_cast<std::size_t>(first) + i % 199);
}
bool holds(std::span<const std::byte> bytes, int first) {
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    if (bytes[i] != static_cast<std::byte>(static_cast<std::size_t>(first) + i % 199)) return false;
  }
  return true;
}

class Registering : public ::testing::Test {
 protected:
  /// As another rank sees it in a call.
  std::span<std::byte> seen(std::span<std::byte> bytes) const {
    const auto reach = arena_->reach(bytes);
    EXPECT_TRUE(reach.has_value());
    if (!reach) return {};
    EXPECT_EQ(reach->place, region_->arena(1) + reach->offset);
    reach->copy_edges(bytes.data(), reach->place, bytes.size());
    return {reach->place, bytes.size()};
  }
  /// Another rank has written to it.
  void fill_there(std::span<std::byte> bytes, int first) const {
    fill(seen(bytes), first);
    const auto reach = arena_->reach(bytes);
    if (reach) reach->copy_edges(reach->place, bytes.data(), bytes.size());
  }
  std::string refusal(std::span<std::byte> bytes) const {
    try {
      (void)arena_->register_memory(bytes);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      return error.what();
    }
    return "none";
  }
  std::size_t room() const {
    std::size_t bytes = arena_bytes;
    for (;; bytes -= page_size) {
      try {
        (void)arena_->allocate(bytes);
        return bytes;
      } catch (const Error&) {
      }
    }
  }

  std::shared_ptr<HostRegion> region_ = HostRegion::create(2, arena_bytes);
  std::shared_ptr<Arena> arena_ = std::make_shared<Arena>(region_, 1);
};

TEST_F(Registering, MakesAnyMemoryReachableAndGivesItBack) {
  for (const std::size_t begin : {std::size_t{0}, std::size_t{100}, page_size - 1}) {
    for (const std::size_t size : {std::size_t{1}, std::size_t{50}, page_size, 5 * page_size + 7}) {
      const Pages pages(8);
      fill(pages.bytes(), 3);
      const auto bytes = pages.bytes().subspan(begin, size);
      const std::size_t before = (page_size - begin) % page_size;
      EXPECT_FALSE(arena_->reach(bytes));
      {
        const RegisteredMemory registered = arena_->register_memory(bytes);
        EXPECT_EQ(registered.is_shared(), size >= before + page_size);
        EXPECT_EQ(registered.bytes().data(), bytes.data());
        EXPECT_TRUE(holds(pages.bytes(), 3));
        fill(bytes, 20);
        if (registered.is_shared()) {
          EXPECT_TRUE(holds(seen(bytes), 20));
          fill_there(bytes, 40);
          EXPECT_EQ(arena_->reach(bytes)->head, before);
          EXPECT_EQ(arena_->reach(bytes)->tail, (size - before) % page_size);
          EXPECT_EQ(arena_->reach(bytes.subspan(1))->offset, arena_->reach(bytes)->offset + 1);
          EXPECT_FALSE(arena_->reach(bytes.subspan(before, page_size))->has_edges());
        } else {
          EXPECT_FALSE(arena_->reach(bytes));
          fill(bytes, 40);
        }
        EXPECT_TRUE(holds(bytes, 40));
        EXPECT_FALSE(arena_->reach(pages.bytes())) << "not as a whole";
      }
      EXPECT_TRUE(holds(bytes, 40));
      EXPECT_FALSE(arena_->reach(bytes));
      EXPECT_TRUE(holds(pages.bytes().first(begin), 3));
      EXPECT_EQ(room(), arena_bytes);
    }
  }
}

// As malloc has them.
TEST_F(Registering, OfNeighboursOnOnePageIsPossible) {
  const Pages pages(8);
  const auto first = pages.bytes().first(2 * page_size + 100);
  const auto second = pages.bytes().subspan(first.size(), 3 * page_size);
  const auto third = pages.bytes().subspan(first.size() + second.size());
  const auto one = arena_->register_memory(first);
  const auto other = arena_->register_memory(third);
  {
    const auto between = arena_->register_memory(second);
    fill_there(first, 1);
    fill_there(second, 2);
    fill_there(third, 3);
    EXPECT_TRUE(holds(first, 1) && holds(second, 2) && holds(third, 3));
  }
  EXPECT_TRUE(holds(second, 2));
  EXPECT_TRUE(holds(seen(first), 1) && holds(seen(third), 3));
}

TEST_F(Registering, OfAVectorIsPossible) {
  std::vector<int> numbers(100'000, 7);
  const auto registered = arena_->register_memory(std::as_writable_bytes(std::span(numbers)));
  EXPECT_EQ(seen(registered.bytes()).front(), std::byte{7});
}

TEST_F(Registering, LosesNothingThatOthersWriteBesideIt) {
  constexpr std::size_t beside = 2000;
  const Pages pages(3);
  const auto before = pages.bytes().first(beside), after = pages.bytes().last(beside);
  std::atomic<bool> is_over = false;
  std::thread writer([&] {
    // Each byte once: what is lost stays lost.
    for (std::size_t i = 0; i < beside; ++i) {
      for (const auto place : {before, after})
        std::atomic_ref(reinterpret_cast<unsigned char&>(place[i])).store(7, std::memory_order_relaxed);
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
    is_over = true;
  });
  int times = 0;
  for (; !is_over; ++times)
    (void)arena_->register_memory(pages.bytes().subspan(beside, 3 * page_size - 2 * beside));
  writer.join();
  for (const auto place : {before, after})
    EXPECT_EQ(std::ranges::count(place, std::byte{7}), std::ssize(place)) << times << " times";
}

TEST_F(Registering, MemoryThatWasFreedIsNotTakenForIt) {
  Pages pages(4);
  fill(pages.bytes(), 1);
  {
    const auto registered = arena_->register_memory(pages.bytes());
    pages.replace();
    fill(pages.bytes(), 50);
    EXPECT_FALSE(arena_->reach(pages.bytes()));
    EXPECT_FALSE(arena_->reach(pages.bytes())) << "and stays so";
    EXPECT_TRUE(holds(pages.bytes(), 50));
  }
  EXPECT_TRUE(holds(pages.bytes(), 50)) << "nothing is put back over other memory";
}

TEST_F(Registering, MemoryThatWasFreedCanBeRegisteredAgain) {
  Pages pages(4);
  const auto first = arena_->register_memory(pages.bytes());
  pages.replace();
  const auto second = arena_->register_memory(pages.bytes().subspan(page_size));
  fill(second.bytes(), 9);
  EXPECT_TRUE(holds(seen(second.bytes()), 9));
}

TEST_F(Registering, MemoryThatWasMovedKeepsItsPages) {
  Pages pages(4);
  {
    const auto registered = arena_->register_memory(pages.bytes());
    pages.move();
    fill(pages.bytes(), 60);
    EXPECT_FALSE(arena_->reach(pages.bytes()));
  }
  const auto all = arena_->allocate(room());
  std::ranges::fill(all.bytes(), std::byte{1});
  EXPECT_TRUE(holds(pages.bytes(), 60)) << "the arena does not use them again";
}

TEST_F(Registering, APartThatIsFreedIsNoticedWhereItIsUsed) {
  const Pages pages(4);
  const auto registered = arena_->register_memory(pages.bytes());
  ASSERT_NE(::mmap(pages.bytes().data() + 2 * page_size, page_size, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
            MAP_FAILED);
  EXPECT_TRUE(arena_->reach(pages.bytes().first(page_size)));
  EXPECT_FALSE(arena_->reach(pages.bytes()));
}

TEST_F(Registering, AForkHasACopy) {
  const Pages pages(4);
  fill(pages.bytes(), 5);
  const auto registered = arena_->register_memory(pages.bytes());
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const bool is_there = holds(pages.bytes(), 5);
    fill(pages.bytes(), 70);
    ::_exit(is_there && holds(pages.bytes(), 70) ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(holds(pages.bytes(), 5));
  EXPECT_TRUE(holds(seen(pages.bytes()), 5));
}

TEST_F(Registering, AForkHasWhatWasThereWhateverItsParentDoesThen) {
  for (const bool ends : {false, true}) {
    const Pages pages(arena_bytes / 4 / page_size);
    fill(pages.bytes(), 5);
    auto registered = arena_->register_memory(pages.bytes());
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      const bool is_there = holds(pages.bytes(), 5);
      fill(pages.bytes(), 70);
      ::_exit(is_there ? 0 : 1);
    }
    if (ends) {
      registered = {};
    } else {
      for (std::size_t at = pages.bytes().size(); at > 0; at -= page_size)
        fill(pages.bytes().subspan(at - page_size, page_size), 90);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0) << (ends ? "its registration ended" : "it was written to");
    EXPECT_TRUE(holds(pages.bytes().first(page_size), ends ? 5 : 90));
  }
}

TEST_F(Registering, AfterAFailureOthersMayStillWriteWhereItWas) {
  const auto is_over = std::make_shared<std::atomic<bool>>(false);
  const std::size_t all = room();
  const Pages pages(all / 2 / page_size);
  {
    const auto registered = arena_->register_memory(pages.bytes());
    arena_->quarantine(pages.bytes(), [is_over] { return is_over->load(); });
  }
  EXPECT_THROW((void)arena_->allocate(all), Error);
  *is_over = true;
  EXPECT_EQ(arena_->allocate(all).bytes().size(), all);
}

TEST_F(Registering, WhatIsNotTheProcesssOwnIsRefused) {
  const Pages pages(4);
  const auto registered = arena_->register_memory(pages.bytes().subspan(page_size, page_size));
  EXPECT_THAT(refusal(pages.bytes()),
              HasSubstr("shared, or mapped from a file (/memfd:lockstep-group (deleted))"));
  EXPECT_THAT(refusal(std::span(region_->arena(1), 64)),
              HasSubstr("it is registered already, or reachable by other processes"));
  const Pages others(5);
  const auto with_edges = arena_->register_memory(others.bytes().subspan(100, 2 * page_size));
  EXPECT_THAT(refusal(others.bytes().subspan(2 * page_size + 50)), HasSubstr("some of the 12238 bytes"));
  EXPECT_THAT(refusal(others.bytes().first(101)),
              HasSubstr("registered already; end that RegisteredMemory first"));
  ASSERT_EQ(::mprotect(pages.bytes().data(), page_size, PROT_READ), 0);
  EXPECT_THAT(refusal(pages.bytes().first(10)), HasSubstr("not to be written"));
  ASSERT_EQ(::munmap(pages.bytes().data() + 3 * page_size, page_size), 0);
  EXPECT_THAT(refusal(pages.bytes().subspan(2 * page_size)), HasSubstr("not mapped"));
  std::byte on_stack[64];
  EXPECT_THAT(refusal(on_stack), HasSubstr("stack"));
  EXPECT_THAT(refusal({}), HasSubstr("no bytes"));
}

TEST_F(Registering, WithoutRoomIsRefusedAndChangesNothing) {
  const Pages pages(2 * arena_bytes / page_size);
  fill(pages.bytes(), 2);
  EXPECT_THAT(refusal(pages.bytes()), HasSubstr("LOCKSTEP_ARENA_BYTES"));
  EXPECT_TRUE(holds(pages.bytes(), 2));
}

TEST(RegisteringInAProcess, OfRanksThatAreThreadsNeedsNothing) {
  const auto arena = std::make_shared<Arena>(HostRegion::in_process(2, arena_bytes), 0);
  std::vector<std::byte> bytes(100);
  const auto registered = arena->register_memory(bytes);
  EXPECT_FALSE(registered.is_shared());
  EXPECT_EQ(registered.bytes().data(), bytes.data());
}

TEST(PageSwap, OlderSystemsTellSharedFromPrivateMemory) {
  Pages pages(3);
  EXPECT_FALSE(looks_shared(pages.bytes())) << "not there yet";
  fill(pages.bytes(), 1);
  EXPECT_FALSE(looks_shared(pages.bytes()));
  const auto region = HostRegion::create(2, arena_bytes);
  const auto arena = std::make_shared<Arena>(region, 1);
  const auto registered = arena->register_memory(pages.bytes());
  EXPECT_TRUE(looks_shared(pages.bytes()));
  pages.replace();
  EXPECT_FALSE(looks_shared(pages.bytes()));
  pages.replace();
  ASSERT_EQ(::mprotect(pages.bytes().data(), pages.bytes().size(), PROT_NONE), 0);
  EXPECT_FALSE(looks_shared(pages.bytes()));
  ASSERT_EQ(::munmap(pages.bytes().data(), pages.bytes().size()), 0);
  EXPECT_FALSE(looks_shared(pages.bytes()));
}

}  // namespace
}  // namespace lockstep
