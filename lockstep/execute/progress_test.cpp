#include "lockstep/execute/progress.h"

#include <gtest/gtest.h>

#include <atomic>
#include <limits>
#include <thread>

#include "lockstep/base/deadline.h"

namespace lockstep {
namespace {

/// Has work that never gets on.
class Stuck final : public Engine {
 public:
  bool advance() override { return false; }
  bool is_idle() const override { return false; }
  void look() override { ++looks; }
  bool wants_looks() const override { return nothing_wakes; }
  void add_wait_descriptors(std::vector<pollfd>&) override { ++naps; }
  bool nothing_wakes = false;
  int looks = 0, naps = 0;
};

// As it is where other programs keep the cores: each yield may take milliseconds.
TEST(Progress, AWaitThatYieldsVeryOftenEndsInTimeAndHasLookedForTrouble) {
  const auto page = std::make_shared<ControlPage>(ControlPage::in_process(1));
  Progress progress(page, {.spins = 0, .yields = std::numeric_limits<int>::max()});
  Stuck stuck;
  progress.attach(stuck);
  EXPECT_FALSE(progress.wait([] { return false; }, std::chrono::milliseconds(1)));
  EXPECT_GE(stuck.looks, 1);
  progress.detach(stuck);
}

TEST(Progress, AWaitWithoutALimitLooksForTroubleWhileItYields) {
  const auto page = std::make_shared<ControlPage>(ControlPage::in_process(1));
  Progress progress(page, {.spins = 0, .yields = std::numeric_limits<int>::max()});
  Stuck stuck;
  progress.attach(stuck);
  const Deadline patience = Deadline::after(std::chrono::seconds(30));
  EXPECT_TRUE(
      progress.wait([&] { return stuck.looks == 2 || patience.expired(); }, std::chrono::nanoseconds::max()));
  EXPECT_EQ(stuck.looks, 2);
  progress.detach(stuck);
}

TEST(Progress, AWaitTakesNoNapsWhereNothingWakesItAndItHasACore) {
  for (const auto& [nothing_wakes, spins] : {std::pair(false, 1), std::pair(true, 1), std::pair(true, 0)}) {
    const auto page = std::make_shared<ControlPage>(ControlPage::in_process(1));
    Progress progress(page, {.spins = spins, .yields = 0, .nap = std::chrono::milliseconds(1)});
    Stuck stuck;
    stuck.nothing_wakes = nothing_wakes;
    progress.attach(stuck);
    const Deadline patience = Deadline::after(std::chrono::seconds(30));
    EXPECT_TRUE(progress.wait([&] { return stuck.looks == 2 || patience.expired(); },
                              std::chrono::nanoseconds::max()));
    EXPECT_EQ(stuck.looks, 2);
    EXPECT_EQ(stuck.naps > 0, !nothing_wakes || spins == 0);
    progress.detach(stuck);
  }
}

/// Has work for ever, and knows who moves it on.
class Driven final : public Engine {
 public:
  bool advance() override {
    ++(std::this_thread::get_id() == main_ ? by_main : by_thread);
    return true;
  }
  bool is_idle() const override { return is_over; }
  void look() override {}
  void add_wait_descriptors(std::vector<pollfd>&) override {}
  std::atomic<int> by_main = 0, by_thread = 0;
  std::atomic<bool> is_over = false;

 private:
  const std::thread::id main_ = std::this_thread::get_id();
};

class ProgressThread : public ::testing::Test {
 protected:
  ProgressThread() {
    progress.attach(driven);
    progress.start_thread();
    await_thread(1);
  }
  ~ProgressThread() override {
    driven.is_over = true;
    progress.detach(driven);
  }
  /// Until it has moved the work on so many times; a test that it never comes to ends by its time-out.
  void await_thread(int times) {
    while (driven.by_thread < times) std::this_thread::yield();
  }
  Progress progress{std::make_shared<ControlPage>(ControlPage::in_process(1)), {}};
  Driven driven;
};

TEST_F(ProgressThread, GoesOnWithWhatNobodyWaitsFor) { await_thread(3); }

TEST_F(ProgressThread, LeavesTheWorkToWhoWaitsAndThenGoesOn) {
  // Once it has seen that somebody waits, it keeps away: at last it does nothing in a million turns of who waits.
  const Deadline patience = Deadline::after(std::chrono::seconds(60));
  int seen = -1, since = 0;
  progress.wait(
      [&] {
        if (driven.by_thread != seen) {
          seen = driven.by_thread;
          since = driven.by_main;
        }
        return driven.by_main - since >= 1'000'000 || patience.expired();
      },
      std::chrono::nanoseconds::max());
  EXPECT_FALSE(patience.expired());
  await_thread(driven.by_thread + 3);
}

}  // namespace
}  // namespace lockstep
