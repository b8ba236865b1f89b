// Named operations that go wrong on ranks that are processes: every rank says which tensors and which ranks.
#include "tests/support/job_test.h"

namespace lockstep::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class Named : public JobTest {
 protected:
  static void expect_all_say(std::vector<Process> ranks, const std::vector<std::string>& parts) {
    for (const Ending& ending : finish(ranks)) {
      EXPECT_EQ(ending.exit_code, 1);
      for (const std::string& part : parts) EXPECT_THAT(ending.err, HasSubstr(part));
    }
  }
};

// Rank 1 waits for another one. Whose deadline is first says it for both.
const std::vector<std::string> one_submits_another = {"named,a=1,b=70000", "1:named,x=2", "!1:named,y=5,z=6"};
const std::vector<std::string> says_who_has_not = {"code=timeout", "was submitted by rank",
                                                   "but not by rank"};
// Rank 0 says it two seconds before the messages' own time-out.
const Variables patience = {{"LOCKSTEP_TIMEOUT", "5s"}};

TEST_F(Named, WhatARankDoesNotSubmitIsSaid) {
  expect_all_say(start_probes(3, one_submits_another, patience), says_who_has_not);
}

TEST_F(Named, WhatARankDoesNotSubmitIsSaidOnTwoHosts) {
  REQUIRE_TWO_HOSTS();
  expect_all_say(start_probes_on_two_hosts(4, one_submits_another, patience), says_who_has_not);
}

TEST_F(Named, SizesThatDifferAreSaidOnTwoHosts) {
  REQUIRE_TWO_HOSTS();
  expect_all_say(start_probes_on_two_hosts(2, {"1:named,a=5", "0:named,a=6"}),
                 {"code=mismatch", "\"a\"", "f32 [5]", "f32 [6]"});
}

TEST_F(Named, ANameSubmittedTwiceIsRefused) {
  auto ranks = start_probes(2, {"0:named,a=5,a=5", "1:named,a=5"});
  const Ending twice = finish(ranks)[0];
  EXPECT_EQ(twice.exit_code, 1);
  EXPECT_THAT(twice.err, AllOf(HasSubstr("code=invalid_argument"), HasSubstr("\"a\"")));
}

}  // namespace
}  // namespace lockstep::testing
