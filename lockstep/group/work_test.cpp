// What becomes of a work that is not simply waited for: its failure is neither thrown where nobody expects it
// nor lost, and a wait that ends early harms nothing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <latch>

#include "lockstep/group/collectives.h"
#include "lockstep/group/threads_test.h"

namespace lockstep {
namespace {

using test::on_ranks;
using ::testing::HasSubstr;

TEST(Work, DestroyedAfterAFailureSaysSoInTheLog) {
  ::testing::internal::CaptureStderr();
  on_ranks(2, [](Group& group) {
    std::vector<float> values(group.rank() == 0 ? 100UL : 200UL);
    EXPECT_NO_THROW({ const Work work = all_reduce(group, values); });
  });
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(said, HasSubstr("a work that nobody waited for failed: all_reduce #0"));
  EXPECT_THAT(said, HasSubstr("rank 1 called all_reduce (sum of f32 x 200)"));
}

TEST(Work, GoesOnWhereAWaitForItEndedEarly) {
  std::latch has_waited(1);
  on_ranks(2, [&](Group& group) {
    std::vector<float> values(30'000, 1.0F);
    if (group.rank() == 1) has_waited.wait();
    Work work = all_reduce(group, values);
    if (group.rank() == 0) {
      EXPECT_FALSE(work.wait_for(std::chrono::milliseconds(20)));
      has_waited.count_down();
    }
    work.wait();
    EXPECT_EQ(values.back(), 2.0F);
  });
}

}  // namespace
}  // namespace lockstep
