#include "lockstep/base/in_order_thread.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <vector>

namespace lockstep {
namespace {

TEST(InOrderThread, RunsWhatItIsGivenInItsOrder) {
  std::vector<int> ran;
  std::future<int> last;
  {
    InOrderThread thread("test");
    for (int i = 0; i < 100; ++i) {
      last = thread.run([i, &ran] {
        ran.push_back(i);
        return i;
      });
    }
  }  // waits
  EXPECT_EQ(last.get(), 99);
  ASSERT_EQ(ran.size(), 100U);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(ran[static_cast<std::size_t>(i)], i);
}

TEST(InOrderThread, HandsOnWhatIsThrownAndGoesOn) {
  InOrderThread thread("test");
  auto failed = thread.run([] { throw std::runtime_error("no"); });
  auto after = thread.run([] { return 7; });
  EXPECT_THROW(failed.get(), std::runtime_error);
  EXPECT_EQ(after.get(), 7);
}

}  // namespace
}  // namespace lockstep
