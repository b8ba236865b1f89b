// The C interface, called by a program in C.
#include "tests/support/job_test.h"

namespace lockstep::testing {
namespace {

using ::testing::HasSubstr;

class CInterface : public JobTest {};

TEST_F(CInterface, DoesWhatItsHeaderSays) {
  for (const int ranks : {1, 2, 3}) {
    const Ending ending =
        start({program("lockstep"), "run", "--no-prefix", "-np", std::to_string(ranks), program("c_probe")})
            .finish();
    EXPECT_EQ(ending.exit_code, 0) << ending.err;
    for (int rank = 0; rank < ranks; ++rank)
      EXPECT_THAT(ending.out, HasSubstr("rank " + std::to_string(rank) + " is through\n")) << ending.err;
  }
}

TEST_F(CInterface, BeginsWhereItIsTold) {
  std::vector<Process> ranks;
  for (const char* const rank : {"0", "1"})
    ranks.push_back(start({program("c_probe"), rank, "2", std::to_string(port())}));
  for (const Ending& ending : finish(ranks)) {
    EXPECT_EQ(ending.exit_code, 0) << ending.err;
    EXPECT_THAT(ending.out, HasSubstr(" is through\n")) << ending.err;
  }
}

TEST_F(CInterface, HasAnExample) {
  const Ending ending =
      start({program("lockstep"), "run", "--no-prefix", "-np", "2", program("hello_from_c")}).finish();
  EXPECT_EQ(ending.exit_code, 0) << ending.err;
  EXPECT_EQ(ending.out, "2 ranks: 2 4 1, loss 0.5 5\n");
}

}  // namespace
}  // namespace lockstep::testing
