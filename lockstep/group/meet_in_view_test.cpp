// Ranks as threads, and a launcher that lets them die and come back at random: whoever comes to a view is told the same of it.
#include "lockstep/group/meet_in_view.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/base/failure_test.h"
#include "lockstep/rendezvous/memory_store.h"
#include "lockstep/rendezvous/prefix_store.h"
#include "lockstep/rendezvous/view_board.h"

namespace lockstep {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

constexpr int longest_pause_us = 6000;  // as long as ranks wait before they look for a newer view

/// Takes a random while before each change.
class SlowStore final : public PrefixStore {
 public:
  SlowStore(std::shared_ptr<Store> store, const std::string& prefix, std::uint32_t seed)
      : PrefixStore(std::move(store), prefix), random_(seed) {}
  std::string compare_set(const std::string& key, const std::string& expected,
                          const std::string& desired) override {
    pause();
    return PrefixStore::compare_set(key, expected, desired);
  }
  void set(const std::string& key, std::string value) override {
    pause();
    PrefixStore::set(key, std::move(value));
  }

 private:
  void pause() {
    std::this_thread::sleep_for(
        std::chrono::microseconds(std::uniform_int_distribution<int>(0, longest_pause_us)(random_)));
  }
  std::mt19937 random_;
};

/// A job whose ranks are threads.
class RandomJob {
 public:
  explicit RandomJob(std::uint32_t seed) : random_(seed) {}

  void run() {
    for (int rank = 0; rank < ranks; ++rank) begin_life(rank);
    publish();
    for (int change = 0; change < changes; ++change) {
      std::this_thread::sleep_for(std::chrono::microseconds(number_up_to(longest_pause_us)));
      const int rank = number_up_to(ranks - 1);
      if (const auto place = place_of_rank(rank)) {
        alive_[static_cast<std::size_t>(rank)] = -1;
        view_.members.erase(view_.members.begin() + *place);
      } else {
        begin_life(rank);
      }
      publish();
    }
    // All that are left meet in the last view.
    for (std::thread& thread : threads_) thread.join();
    for (const auto& [number, heard] : heard_) {
      EXPECT_EQ(heard.views.size(), 1U) << "view " << number << " is not the same for all";
      EXPECT_EQ(heard.outcomes.size(), 1U) << "view " << number << " has come to two ends";
    }
    if (view_.members.empty()) return;
    EXPECT_EQ(heard_[view_.number].outcomes, std::set<bool>{true});
  }

 private:
  static constexpr int ranks = 4, changes = 4;
  struct Heard {
    std::set<std::string> views;
    std::set<bool> outcomes;
  };

  int number_up_to(int most) { return std::uniform_int_distribution<int>(0, most)(random_); }

  std::optional<std::ptrdiff_t> place_of_rank(int rank) const {
    const auto found = std::ranges::find(view_.members, rank, &Life::rank);
    if (found == view_.members.end()) return std::nullopt;
    return found - view_.members.begin();
  }

  void begin_life(int rank) {
    const Life life{.rank = rank, .incarnation = lives_[static_cast<std::size_t>(rank)]++};
    alive_[static_cast<std::size_t>(rank)] = life.incarnation;
    view_.members.push_back(life);
    threads_.emplace_back([this, life] { live(life); });
  }

  void publish() {
    ++view_.number;
    ViewBoard(*store_).publish(view_);
    newest_ = view_.number;
  }

  void live(const Life& life) {
    while (alive_[static_cast<std::size_t>(life.rank)] == life.incarnation) {
      if (newest_ == 0) continue;
      const View view = ViewBoard(*store_).get(newest_, Deadline::after(10s));
      if (!view.has(life)) continue;
      SlowStore part(store_, ViewBoard::place_of(view.number),
                     static_cast<std::uint32_t>(life.rank + 10 * life.incarnation));
      const bool met = meet_in_view(
          part, view, life, [this] { return newest_.load(); }, Deadline::after(60s));
      {
        const std::lock_guard lock(mutex_);
        heard_[view.number].views.insert(view.to_text());
        heard_[view.number].outcomes.insert(met);
      }
      while (met && newest_ == view.number) {
        if (view.number == changes + 1) return;  // nothing changes after that
        std::this_thread::yield();
      }
    }
  }

  std::mt19937 random_;
  const std::shared_ptr<MemoryStore> store_ = std::make_shared<MemoryStore>();
  View view_;
  std::atomic<std::uint64_t> newest_ = 0;
  std::array<std::atomic<int>, ranks> alive_{};
  std::array<int, ranks> lives_{};
  std::vector<std::thread> threads_;
  std::mutex mutex_;
  std::map<std::uint64_t, Heard> heard_;
};

TEST(MeetInView, EndsTheSameForAllRanks) {
  constexpr std::uint32_t jobs = 100;  // script/soak views repeats it, each time with other seeds
  const auto first = jobs * static_cast<std::uint32_t>(testing::UnitTest::GetInstance()->random_seed());
  for (std::uint32_t seed = first; seed < first + jobs; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    RandomJob(seed).run();
    if (testing::Test::HasFailure()) return;
  }
}

TEST(MeetInView, NamesWhoDoesNotCome) {
  const auto store = std::make_shared<MemoryStore>();
  const View view{.number = 3, .members = {{0}, {1}, {2, 5}}};
  const auto come = [&](const Life& life, std::chrono::nanoseconds limit) {
    return test::failure_of(
        [&] {
          (void)meet_in_view(
              *store, view, life, [] { return 3; }, Deadline::after(limit));
        },
        ErrorCode::timeout);
  };
  std::string first;
  std::thread other(
      [&] { first = come({0}, 50ms); });  // alone has a time-out, so that it is not named itself
  const std::string third = come({2, 5}, 60s);
  other.join();
  EXPECT_THAT(first, HasSubstr("rank 1 did not come to view 3"));
  EXPECT_EQ(third, first);
}

}  // namespace
}  // namespace lockstep
