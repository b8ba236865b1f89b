#include "lockstep/execute/progress.h"

#include <gtest/gtest.h>

#include <limits>

#include "lockstep/base/deadline.h"

namespace lockstep {
namespace {

/// Has work that never gets on.
class Stuck final : public Engine {
 public:
  bool advance() override { return false; }
  bool is_idle() const override { return false; }
  void look() override { ++looks; }
  void add_wait_descriptors(std::vector<pollfd>&) override {}
  int looks = 0;
};

// As it is where other programs keep the cores: each yield may take milliseconds.
TEST(Progress, AWaitThatYieldsVeryOftenEndsInTimeAndHasLookedForTrouble) {
  const auto page = std::make_shared<ControlPage>(ControlPage::in_process(1));
  Progress progress(page, {.spins = 0, .yields = std::numeric_limits<int>::max()});
  Stuck stuck;
  progress.attach(stuck);
  EXPECT_FALSE(progress.wait([] { return false; }, std::chrono::milliseconds(1)));
  EXPECT_EQ(stuck.looks, 1);
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

}  // namespace
}  // namespace lockstep
