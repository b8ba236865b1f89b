// A job in which nothing goes on says by itself which rank is where, once.
#include <csignal>

#include "tests/support/job_test.h"

namespace lockstep::testing {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

const std::string beginning = "lockstep run: nothing has gone on for ";

class ExplainAfter : public JobTest {
 protected:
  /// Of two ranks, or on two launchers.
  Process launch(std::vector<std::string> options, const std::vector<std::string>& actions,
                 const Variables& variables = {}) const {
    options.insert(options.begin(), {program("lockstep"), "run"});
    options.push_back(program("probe_rank"));
    options.insert(options.end(), actions.begin(), actions.end());
    return start(options, variables);
  }
};

TEST_F(ExplainAfter, AStandstillIsToldOnceAndAgainOnlyAfterProgress) {
  Process job =
      launch({"-np", "2", "--explain-after", "1s"}, {"barrier", "0:read", "barrier", "0:read", "barrier"});
  job.await_err("in barrier #1 in group \"world\"\n");
  job.type("\n");
  job.await_err("in barrier #2 in group \"world\"\n");
  job.type("\n");
  const Ending ending = job.finish();
  EXPECT_EQ(ending.exit_code, 0) << ending.err;
  const auto told = lines_with(ending.err, beginning);
  ASSERT_THAT(told, SizeIs(2)) << ending.err;
  EXPECT_THAT(told[0],
              ::testing::MatchesRegex(
                  beginning + "1 s: slow rank: rank 0 \\(pid [0-9]+\\) is outside of any collective for "
                              "[0-9.]+ m?s, after barrier #0 in group \"world\"; rank 1 has waited [0-9.]+ "
                              "m?s for it in barrier #1 in group \"world\""));
  EXPECT_THAT(lines_with(ending.err, "lockstep run:   `lockstep explain --pid " + std::to_string(job.pid())),
              SizeIs(2));
}

TEST_F(ExplainAfter, AJobThatComputesLongIsLeftAlone) {
  const Ending ending =
      launch({"-np", "2", "--explain-after", "3s"}, {"barrier", "sleep,5000", "barrier"}).finish();
  EXPECT_EQ(ending.exit_code, 0) << ending.err;
  EXPECT_THAT(lines_with(ending.err, beginning), IsEmpty()) << ending.err;
}

TEST_F(ExplainAfter, ItCanBeSwitchedOff) {
  Process job = launch({"-np", "2"}, {"barrier", "0:read", "barrier"},
                       {{"LOCKSTEP_EXPLAIN_AFTER", "0"}, {"LOCKSTEP_WARN_AFTER", "300ms"}});
  job.await_err("lockstep[1]: ");  // as a rank says that it waits
  job.type("\n");
  const Ending ending = job.finish();
  EXPECT_EQ(ending.exit_code, 0) << ending.err;
  EXPECT_THAT(lines_with(ending.err, beginning), IsEmpty()) << ending.err;
}

TEST_F(ExplainAfter, LessThanASecondIsRefused) {
  const Ending ending = launch({"-np", "1", "--explain-after", "200ms"}, {"say,started"}).finish();
  EXPECT_EQ(ending.exit_code, 2);
  EXPECT_EQ(ending.out, "");
  EXPECT_EQ(lines_with(ending.err, "lockstep run: --explain-after ").size(), 1U) << ending.err;
}

TEST_F(ExplainAfter, OfSeveralLaunchersTheOneThatLeadsSeesAllRanks) {
  const Variables secret = {{"LOCKSTEP_SECRET_FILE", secret_file("0123456789abcdef")}};
  const auto node = [&](const std::string& number) {
    return launch({"--nnodes", "2", "--nproc-per-node", "2", "--rdzv-endpoint",
                   "localhost:" + std::to_string(port()), "--node-rank", number, "--explain-after", "1s"},
                  {"barrier", "3:pause", "barrier"}, secret);
  };
  Process leader = node("0"), follower = node("1");
  leader.await_err("slow rank: rank 3 (pid ");
  leader.send(SIGTERM);
  (void)leader.finish();
  EXPECT_THAT(lines_with(follower.finish().err, beginning), IsEmpty());
}

}  // namespace
}  // namespace lockstep::testing
