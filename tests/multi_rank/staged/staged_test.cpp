// Real trainings with one thing wrong with each: the first sentence of the report has to name it. They run alone on the
// machine, because a rank without its core is a thing wrong, too, and a few times over where something else was at work.

#include "tests/support/ssh_job_test.h"

namespace lockstep::testing {
namespace {

class StagedRun : public SshJobTest {
 protected:
  /// The first sentence of one job's report. `options`: of `lockstep run`.
  std::string sentence_of(const std::vector<std::string>& stage, const std::vector<std::string>& options,
                          const Variables& variables, int network) const {
    const std::string place = folder() / "report";
    std::vector<std::string> words = {program("lockstep"), "run", "--report", place};
    words.insert(words.end(), options.begin(), options.end());
    words.push_back(program("staged_rank"));
    words.insert(words.end(), stage.begin(), stage.end());
    const Ending run = start(words, variables, network).finish();
    EXPECT_EQ(run.exit_code, 0) << run.err;
    const Ending report = start({program("lockstep"), "report", place}).finish();
    EXPECT_EQ(report.exit_code, 0) << report.err;
    const std::size_t begin = report.out.find("\n\n") + 2;
    return report.out.substr(begin, report.out.find("\n\n", begin) - begin);
  }
  void expect_sentence(const std::string& expression, const std::vector<std::string>& stage,
                       const std::vector<std::string>& options = {"-np", "2"},
                       const Variables& variables = {}, int network = -1) const {
    std::string said;
    for (int attempt = 0; attempt < 20; ++attempt) {
      const std::string sentence = sentence_of(stage, options, variables, network);
      if (::testing::Matches(::testing::ContainsRegex(expression))(sentence)) return;
      said += sentence + "\n";
    }
    ADD_FAILURE() << "the report never says " << expression << ", but\n" << said;
  }
};

TEST_F(StagedRun, WithNothingWrongSaysSo) {
  // Paced, because one of the cores may be a few percent slower than the other, and that would stand out; and few
  // gradients in long steps, because on a machine of slow memory 6 MiB of them are more than 3 % of 80 ms.
  expect_sentence("^Nothing stands out: ", {"--paced", "150", "--steps", "30", "--width", "256"});
}

TEST_F(StagedRun, OfASlowForwardNamesTheRankAndItsForward) {
  expect_sentence(
      "; rank 1 arrives last in [0-9.]+ % of steps, median [0-9.]+ ms late, because its forward and backward "
      "take longer",
      {"--slow-forward", "1", "5"});
}

TEST_F(StagedRun, OfASlowLoaderNamesTheRankAndItsLoader) {
  expect_sentence(
      "; rank 0 arrives last in [0-9.]+ % of steps, median [0-9.]+ ms late, because its loader is slow",
      {"--slow-loader", "0", "50"});
}

TEST_F(StagedRun, OfABusyCoreNamesTheRankThatHasIt) {
  expect_sentence(
      "; rank 1 arrives last in [0-9.]+ % of steps, median [0-9.]+ ms late, because its core is "
      "shared: it had one for [3-7][0-9] % of the time",
      {"--busy-core", "1"});
}

TEST_F(StagedRun, OfASmallBatchSaysThatStepsAreSmall) {
  REQUIRE_SSH_HOSTS(2);  // between hosts a call outweighs a step of one sample on any machine
  expect_sentence(
      "; steps are small: ", {"--batch", "1", "--width", "1024", "--layers", "2", "--steps", "100"},
      {"-H", list(1)}, {{"LOCKSTEP_SSH", servers().client()}}, hosts().network(0));
}

TEST_F(StagedRun, OfBucketsInABadOrderSaysThatTheyAreCompleteTooLate) {
  expect_sentence("; only [0-9.]+ of [0-9]+ buckets are complete at the last gradient",
                  {"--reversed", "--batch", "32"});
}

TEST_F(StagedRun, OfASlowLinkBetweenThreeHostsNamesItsEnds) {
  REQUIRE_SSH_HOSTS(3);
  const Ending narrowed = run(
      {.words = {"/bin/sh", "-ec", "tc qdisc add dev cable root tbf rate 400mbit burst 64kb latency 100ms"},
       .network = hosts().network(2)});
  ASSERT_EQ(narrowed.exit_code, 0) << narrowed.err;
  expect_sentence("; the connection from rank 2 \\(host [^)]*\\) to rank [01] ", {"--steps", "30"},
                  {"-H", list(1)}, {{"LOCKSTEP_SSH", servers().client()}}, hosts().network(0));
}

}  // namespace
}  // namespace lockstep::testing
