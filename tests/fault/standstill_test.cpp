// A rank in a message and one in a collective that wait for each other are told so long before their time is
// over; ranks whose calls end all the same are left alone.
#include "tests/support/job_test.h"

namespace lockstep::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::SizeIs;

struct Calls {
  const char* name;
  int ranks;
  std::vector<std::string> actions;
  std::string who;
};

std::ostream& operator<<(std::ostream& out, const Calls& calls) { return out << calls.name; }

const Calls kinds[] = {
    {"AReceiveAndABarrier",
     2,
     {"0:recv,10,1", "1:barrier"},
     "rank 0 waits in recv (10 bytes) from rank 1, which waits in barrier #0 for rank 0"},
    {"AReceiveAfterOthers",
     2,
     {"barrier", "1:send,20,0", "0:recv,20,1", "0:recv,10,1", "1:all_reduce,f32,100000"},
     "rank 0 waits in recv (10 bytes) from rank 1, which waits in all_reduce #1 (sum of f32 x 100000) for "
     "rank 0"},
    {"AReceiveOfOneOfFour",
     4,
     {"barrier", "3:recv,10,1", "!3:all_reduce,f32,3"},
     "rank 3 waits in recv (10 bytes) from rank 1, which waits in all_reduce #1 (sum of f32 x 3) for rank 3"},
};

class StandstillTest : public JobTest {
 protected:
  void SetUp() override {
    JobTest::SetUp();
#ifdef __SANITIZE_THREAD__
    GTEST_SKIP() << "ThreadSanitizer has a thread of its own in each rank, which might send";
#endif
  }
};

void expect_named(const std::vector<Ending>& endings, const std::string& who) {
  for (const Ending& ending : endings) {
    EXPECT_EQ(ending.exit_code, 1);
    const auto errors = lines_with(ending.err, "probe rank=");
    ASSERT_THAT(errors, SizeIs(1)) << ending.err;
    EXPECT_THAT(errors.front(), AllOf(HasSubstr("code=mismatch"), HasSubstr(who + ": neither can go on"),
                                      HasSubstr("make all ranks call the same")));
  }
}

class Standstill : public StandstillTest, public ::testing::WithParamInterface<Calls> {};

TEST_P(Standstill, IsNamedByAll) {
  auto ranks = start_probes(GetParam().ranks, GetParam().actions);
  expect_named(finish(ranks), GetParam().who);
}

TEST_P(Standstill, IsNamedByAllOnTwoHosts) {
  REQUIRE_TWO_HOSTS();
  auto ranks = start_probes_on_two_hosts(GetParam().ranks, GetParam().actions);
  expect_named(finish(ranks), GetParam().who);
}

INSTANTIATE_TEST_SUITE_P(Of, Standstill, ::testing::ValuesIn(kinds),
                         [](const auto& info) { return info.param.name; });

TEST_F(StandstillTest, OfASendThatNoRingHoldsIsNamedByBoth) {
  auto ranks = start_probes(2, {"0:send,3000000,1", "1:barrier"});
  expect_named(finish(ranks),
               "rank 0 waits in send (3000000 bytes) to rank 1, which waits in barrier #0 for rank 0");
}

/// Each begins with a wait so long that a standstill would have been found: its warning is the event that says so.
/// Then rank `helper` gets its line, and all end well.
struct Legal {
  const char* name;
  int ranks;
  int helper;
  std::vector<std::string> actions;
  std::string warning;  ///< of rank 1
};

std::ostream& operator<<(std::ostream& out, const Legal& legal) { return out << legal.name; }

const Legal legal[] = {
    {"AReceiveThatIsAwaitedAfterTheCollective",
     2,
     0,
     {"0:post_recv,10,1", "0:read", "barrier", "0:await_posted", "1:send,10,0"},
     "barrier #0 in group \"world\" has waited 3 s for rank 0"},
    {"AMessageThatAnotherThreadSends",
     2,
     1,
     {"1:send_by_thread,10,0", "0:recv,10,1", "barrier", "1:join_thread"},
     "has waited 3 s for rank 0; rank 0 waits in recv (10 bytes) from rank 1, which waits in barrier #0 "
     "for "
     "rank 0; it fails"},
    {"AReceiveThatAThirdServes",
     3,
     2,
     {"0:recv,10,2", "2:read", "2:send,10,0", "barrier"},
     "barrier #0 in group \"world\" has waited 3 s for rank"},
    {"AMessageOfBefore",
     2,
     0,
     {"1:send,10,0", "0:read", "0:recv,10,1", "barrier"},
     "barrier #0 in group \"world\" has waited 3 s for rank 0; it fails"},
};

class NoStandstill : public JobTest, public ::testing::WithParamInterface<Legal> {
 protected:
  void expect_all_well(std::vector<Process> ranks) {
    ranks[1].await_err(GetParam().warning);
    if (HasFailure()) return;
    ranks[static_cast<std::size_t>(GetParam().helper)].type("go on\n");
    for (const Ending& ending : finish(ranks)) {
      EXPECT_EQ(ending.exit_code, 0) << ending.err;
      EXPECT_THAT(ending.out, HasSubstr("done"));
    }
  }
  const Variables soon_ = {{"LOCKSTEP_WARN_AFTER", "3s"}};
};

TEST_P(NoStandstill, IsSeenWhereCallsEnd) {
  expect_all_well(start_probes(GetParam().ranks, GetParam().actions, soon_));
}

TEST_P(NoStandstill, IsSeenWhereCallsEndOnTwoHosts) {
  REQUIRE_TWO_HOSTS();
  expect_all_well(start_probes_on_two_hosts(GetParam().ranks, GetParam().actions, soon_));
}

INSTANTIATE_TEST_SUITE_P(In, NoStandstill, ::testing::ValuesIn(legal),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace lockstep::testing
