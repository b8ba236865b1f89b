// Elastic training on processes that die, come back, stop, throw, and come with something else.
#include <csignal>
#include <random>

#include "tests/support/ssh_job_test.h"

namespace lockstep::testing {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

class ElasticJob : public SshJobTest {
 protected:
  /// `words`: options of `lockstep run`, then "--", then those of elastic_rank.
  Ending launch(const std::vector<std::string>& words, const Variables& variables = {},
                int network = -1) const {
    std::vector<std::string> command = {program("lockstep"), "run", "--no-prefix"};
    for (const std::string& word : words) command.push_back(word == "--" ? program("elastic_rank") : word);
    return start(command, variables, network).finish();
  }

  /// " is done, bits B\n" of a training of so many steps that nobody disturbs.
  std::string done(int steps = 40, const std::vector<std::string>& deeds = {}) const {
    std::vector<std::string> command = {program("elastic_rank"), "steps=" + std::to_string(steps)};
    command.insert(command.end(), deeds.begin(), deeds.end());
    const Ending alone = start(command).finish();
    EXPECT_EQ(alone.exit_code, 0) << alone.err;
    const auto begin = alone.out.find(" is done, bits ");
    EXPECT_NE(begin, std::string::npos) << alone.out;
    return begin == std::string::npos ? "?" : alone.out.substr(begin);
  }

  /// All that live at the end, `ranks` of them, have the bits of an undisturbed training.
  void expect_done(const Ending& ending, int ranks, const std::string& done) const {
    EXPECT_EQ(ending.exit_code, 0) << ending.err;
    const auto lines = lines_with(ending.out, "rank ");
    int found = 0;
    for (const std::string& line : lines) {
      if (line.find(" is done, ") == std::string::npos) continue;
      ++found;
      EXPECT_THAT(line + "\n", HasSubstr("of " + std::to_string(ranks) + done)) << ending.err;
    }
    EXPECT_EQ(found, ranks) << ending.out << ending.err;
  }
};

TEST_F(ElasticJob, HasTheSameBitsOnAnyNumberOfRanks) {
  const std::string undisturbed = done();
  for (const int ranks : {1, 2, 4, 7})  // 7: more than there are parts
    expect_done(launch({"-np", std::to_string(ranks), "--"}), ranks, undisturbed);
}

TEST_F(ElasticJob, GoesOnWithoutTheDeadAndWithThoseThatComeBack) {
  const Ending ending = launch({"-np", "3", "--min-np", "1", "--max-restarts", "3", "--", "die@10:1",
                                "await@12:*", "die@20:0", "await@22:*"});
  expect_done(ending, 3, done());
  EXPECT_THAT(ending.out,
              AllOf(HasSubstr("rank 0 of 2 from step 10\n"), HasSubstr("rank 1 comes at step 13\n"),
                    HasSubstr("rank 2 of 3 from step 13\n"), HasSubstr("rank 2 of 2 from step 20\n"),
                    HasSubstr("rank 0 comes at step 23\n"), HasSubstr("rank 1 of 3 from step 23\n")))
      << ending.err;
}

TEST_F(ElasticJob, OnTwoHostsIsTheSame) {
  REQUIRE_SSH_HOSTS(2);
  const Ending ending = launch({"-H", list(2), "--min-np", "1", "--max-restarts", "3", "--", "die@10:3",
                                "await@12:*", "die@20:1", "await@22:*"},
                               {{"LOCKSTEP_SSH", servers().client()}}, hosts().network(0));
  expect_done(ending, 4, done());
  EXPECT_THAT(ending.out,
              AllOf(HasSubstr("rank 3 comes at step 13\n"), HasSubstr("rank 1 comes at step 23\n")))
      << ending.err;
}

TEST_F(ElasticJob, SpreadsStateOverRanksAndHasTheSameBits) {
  const std::string undisturbed = done();
  for (const int ranks : {1, 2, 3, 5})
    expect_done(launch({"-np", std::to_string(ranks), "--", "spread=1"}), ranks, undisturbed);
  const Ending ending = launch({"-np", "6", "--", "spread=1", "save_every=15"});
  int held = 0;
  for (const std::string& line : lines_with(ending.out, "rank ")) {
    if (const auto has = line.find(" has the state of "); has != std::string::npos)
      held += std::stoi(line.substr(has + 18));
  }
  EXPECT_EQ(held, 2 * 6);  // of six parameters, on two ranks each
  EXPECT_THAT(lines_with(ending.out, "rank 0 saves the state of 6"), ::testing::SizeIs(2)) << ending.out;
}

TEST_F(ElasticJob, SpreadStateOutlivesTheDead) {
  const std::string undisturbed = done();
  for (const std::vector<std::string>& deeds :
       {std::vector<std::string>{"die@10:1", "await@12:*", "die@20:0", "await@22:*"},
        {"die_stepping@10:1", "await@12:*", "die_stepping@20:0", "await@22:*"}}) {
    std::vector<std::string> words = {"-np", "3", "--min-np", "1", "--max-restarts", "3", "--", "spread=1"};
    words.insert(words.end(), deeds.begin(), deeds.end());
    expect_done(launch(words), 3, undisturbed);
  }
  expect_done(
      launch({"-np", "5", "--min-np", "1", "--max-restarts", "0", "--", "spread=1", "die@10:1", "die@10:3"}),
      3, undisturbed);
  REQUIRE_SSH_HOSTS(2);
  expect_done(launch({"-H", list(2), "--min-np", "1", "--max-restarts", "3", "--", "spread=1",
                      "die_stepping@10:3", "await@12:*", "die@20:1", "await@22:*"},
                     {{"LOCKSTEP_SSH", servers().client()}}, hosts().network(0)),
              4, undisturbed);
}

// Its share goes to others before those that gave it up are needed.
TEST_F(ElasticJob, SpreadStateOutlivesOneThatDiesWhileItHandsOver) {
  for (const char* deed : {"die_giving@*:0", "die_saving@*:0"}) {
    const Ending ending = launch({"-np", "3", "--min-np", "1", "--max-restarts", "3", "--", "spread=1",
                                  "save_every=14", "die@10:1", "await@12:*", deed});
    EXPECT_EQ(ending.exit_code, 0) << ending.err;
    EXPECT_THAT(ending.out, HasSubstr(done())) << ending.err;
    EXPECT_THAT(ending.err, ContainsRegex("rank 0 \\(pid [0-9]+\\) was killed by signal 9"));
  }
}

// Ranks meet again only with the one that comes back: it is told of the step as one that its program does not know of yet.
TEST_F(ElasticJob, AStepThatIsSettledAsOneComesCountsForItToo) {
  expect_done(launch({"-np", "3", "--min-np", "1", "--max-restarts", "1", "--", "spread=1", "least=3",
                      "die_stepping@10:1"}),
              3, done());
}

TEST_F(ElasticJob, SpreadStateThatTwoTakeWithThemIsMissed) {
  const Ending ending =
      launch({"-np", "4", "--min-np", "1", "--max-restarts", "0", "--", "spread=1", "die@10:1", "die@10:2"});
  EXPECT_NE(ending.exit_code, 0);
  for (const std::string rank : {"0", "3"})
    EXPECT_THAT(ending.err,
                ContainsRegex("rank " + rank +
                              " failed: Elastic: the optimizer's state of parameter "
                              "[0-9a-z.]+ is lost: the two ranks that had it have died together; begin "
                              "anew, from a checkpoint"));
}

TEST_F(ElasticJob, TwoDieAtOnce) {
  expect_done(launch({"-np", "4", "--min-np", "1", "--max-restarts", "0", "--", "die@10:1", "die@10:2"}), 2,
              done());
}

TEST_F(ElasticJob, OfWhomNobodyIsLeftBeginsAnew) {
  expect_done(launch({"-np", "2", "--min-np", "1", "--max-restarts", "2", "--", "least=2", "die@10:*"}), 2,
              done());
}

TEST_F(ElasticJob, OneDiesWhileItJoins) {
  const Ending ending = launch({"-np", "2", "--min-np", "1", "--max-restarts", "3", "--", "die@10:1",
                                "await@12:*", "await@13:*", "die_joining@*:1"});
  expect_done(ending, 2, done());
  EXPECT_THAT(ending.err, HasSubstr("restart 2 of 3")) << ending.out;
}

TEST_F(ElasticJob, OneDiesWhileItHandsItsStateOver) {
  const Ending ending = launch(
      {"-np", "3", "--min-np", "1", "--max-restarts", "3", "--", "die@10:1", "await@12:*", "die_giving@*:0"});
  EXPECT_EQ(ending.exit_code, 0) << ending.err;
  EXPECT_THAT(ending.out, HasSubstr(done())) << ending.err;
  EXPECT_THAT(ending.err, ContainsRegex("rank 0 \\(pid [0-9]+\\) was killed by signal 9"));
}

TEST_F(ElasticJob, WhoHasHalfOfAStateThatNobodyElseHasBeginsAnew) {
  const Ending ending = launch(
      {"-np", "2", "--min-np", "1", "--max-restarts", "3", "--", "least=2", "die@10:1", "die_giving@*:0"});
  expect_done(ending, 2, done());
  EXPECT_THAT(ending.err,
              HasSubstr("rank 1 failed: Elastic: the rank that handed its state over to this one has died"));
}

TEST_F(ElasticJob, GoesOnWithoutOneThatDoesNotAnswer) {
  const Ending ending = launch({"-np", "3", "--min-np", "1", "--max-restarts", "0", "--", "stop@10:1"},
                               {{"LOCKSTEP_TIMEOUT", "3s"}});
  expect_done(ending, 2, done());
}

TEST_F(ElasticJob, GoesOnWithoutOneThatThrows) {
  const Ending ending = launch({"-np", "3", "--min-np", "1", "--max-restarts", "0", "--", "throw@10:1"});
  expect_done(ending, 2, done());
  EXPECT_THAT(
      ending.err,
      AllOf(HasSubstr("rank 1 failed: told to throw\n"),
            ContainsRegex("rank 1 \\(pid [0-9]+\\) ended with exit code 1; the job goes on without it")));
}

TEST_F(ElasticJob, GoesOnWithoutOneThatComesWithAnotherModel) {
  const Ending ending = launch({"-np", "2", "--min-np", "1", "--max-restarts", "1", "--", "die@10:1",
                                "await@12:*", "other_model@*:1"});
  expect_done(ending, 1, done());
  EXPECT_THAT(
      ending.err,
      AllOf(HasSubstr("rank 1 failed: rank 1's parameter 0.weight is f64 [1, 8], rank 0's is f64 [10, 8]"),
            HasSubstr("a rank that has come does not fit: rank 1's parameter 0.weight")));
}

TEST_F(ElasticJob, GoesOnWithoutOneThatComesWithAnotherProgram) {
  const Ending ending = launch({"-np", "2", "--min-np", "1", "--max-restarts", "1", "--", "die@10:1",
                                "await@12:*", "other_program@*:1"});
  expect_done(ending, 1, done());
  EXPECT_THAT(ending.err,
              AllOf(HasSubstr("rank 1 failed: "), HasSubstr("a rank that has come does not fit: ")));
}

TEST_F(ElasticJob, BelowItsLeastWaitsForOthers) {
  expect_done(launch({"-np", "2", "--min-np", "1", "--max-restarts", "1", "--", "least=2", "die@10:1"}), 2,
              done());
}

TEST_F(ElasticJob, BelowItsLeastGivesUpAfterAWhile) {
  const Ending ending = launch(
      {"-np", "2", "--min-np", "1", "--max-restarts", "0", "--", "least=2", "wait_ms=300", "die@10:1"});
  EXPECT_EQ(ending.exit_code, 1);
  EXPECT_THAT(
      ending.err,
      HasSubstr(
          "rank 0 failed: Elastic: ranks that live: 1, of at least 2 that train; none has come for 300 ms"));
}

TEST_F(ElasticJob, WhoseRanksAreAsTheyBeganIsToldIfTheyAreTooFew) {
  const Ending ending = start({program("elastic_rank"), "least=2"}).finish();
  EXPECT_EQ(ending.exit_code, 1);
  EXPECT_EQ(ending.err,
            "rank 0 failed: Elastic: ranks that live: 1, of at least 2 that train; this job's ranks are "
            "those that it "
            "began with\n");
}

TEST_F(ElasticJob, StopsAtGradientsThatAreNoNumbersAndNamesThePart) {
  const Ending ending =
      launch({"-np", "2", "--min-np", "1", "--max-restarts", "0", "--", "non_finite=stop", "nan@7:*"});
  EXPECT_EQ(ending.exit_code, 1);
  for (const char* rank : {"rank 0", "rank 1"})
    EXPECT_THAT(ending.err,
                HasSubstr(std::string(rank) +
                          " failed: Elastic, step 7, part 3 (on rank 1): the gradient of parameter "
                          "0.weight is infinite or no number; no rank has taken the step"));
}

// Who has come meanwhile has not seen the gradients: it is told when they are computed again.
TEST_F(ElasticJob, TellsThoseWhoComeAsOneDiesWhyItStops) {
  const Ending ending = launch({"-np", "3", "--min-np", "1", "--max-restarts", "1", "--", "least=3",
                                "wait_ms=10000", "non_finite=stop", "nan@7:*", "die_agreeing@7:0"});
  EXPECT_EQ(ending.exit_code, 1) << ending.err;
  for (const char* rank : {"rank 0", "rank 1", "rank 2"})
    EXPECT_THAT(ending.err,
                ContainsRegex(std::string(rank) + " failed: Elastic, step 7, part 3 \\(on rank [0-2]\\)"));
}

TEST_F(ElasticJob, SkipsAStepWhoseGradientsAreNoNumbers) {
  const std::string skipped = done(40, {"non_finite=skip", "nan@7:*"});
  EXPECT_NE(skipped, done());
  expect_done(launch({"-np", "3", "--min-np", "1", "--max-restarts", "0", "--", "non_finite=skip", "nan@7:*",
                      "die@9:2"}),
              2, skipped);
}

// Any of them, at any step.
TEST_F(ElasticJob, GoesOnWhicheverRankIsHurt) {
  const std::string undisturbed = done();
  std::mt19937 random(std::random_device{}());
  for (const std::string deed : {"die", "stop", "throw", "nan"}) {
    for (int round = 0; round < times_of_soak("SOAK_HURTS", 1); ++round) {
      const std::string rank = std::to_string(random() % 3), step = std::to_string(random() % 40);
      const std::string what = deed + "@" + step + ":" + (deed == "nan" ? "*" : rank);
      SCOPED_TRACE(what);
      const Ending ending =
          launch({"-np", "3", "--min-np", "1", "--max-restarts", "0", "--", "non_finite=stop", what},
                 {{"LOCKSTEP_TIMEOUT", "1s"}});
      if (deed == "nan") {
        EXPECT_EQ(ending.exit_code, 1);
        for (const char* one : {"rank 0", "rank 1", "rank 2"})
          EXPECT_THAT(ending.err,
                      HasSubstr(one + (" failed: Elastic, step " + step) + ", part 3 (on rank 1)"));
      } else {
        expect_done(ending, 2, undisturbed);
        EXPECT_THAT(ending.err, ContainsRegex("rank " + rank + " .*goes on without it"));
      }
    }
  }
}

TEST_F(ElasticJob, RefusesAParameterThatWasFrozen) {
  const Ending ending = launch({"-np", "2", "--", "thaw=10"});
  EXPECT_EQ(ending.exit_code, 1);
  for (const char* rank : {"rank 0", "rank 1"})
    EXPECT_THAT(ending.err,
                HasSubstr(std::string(rank) + " failed: Elastic: parameter 0.weight wants a gradient, and "
                                              "wanted none when this was made: make another one"));
}

// Those that come have not frozen it yet, nor have those that have not taken the step before.
TEST_F(ElasticJob, GoesOnWithAParameterThatIsFrozenOnTheWay) {
  const Ending ending = launch({"-np", "3", "--min-np", "1", "--max-restarts", "3", "--", "freeze=10",
                                "die_agreeing@9:1", "await@11:*", "die@14:2", "await@16:*"});
  expect_done(ending, 3, done(40, {"freeze=10"}));
  EXPECT_THAT(ending.err, Not(HasSubstr("does not fit")));
}

TEST_F(ElasticJob, OfAFixedJobEndsWithARanksDeath) {
  const Ending ending = launch({"-np", "2", "--", "die@10:1"});
  EXPECT_EQ(ending.exit_code, 137);
  EXPECT_THAT(ending.err, HasSubstr("was killed by signal 9"));
}

TEST_F(ElasticJob, SaysWhatCannotBe) {
  for (const auto& [word, text] :
       {std::pair("parts=0", "Elastic: parts is 0; a batch has 1 or more"),
        {"least=0", "Elastic: least is 0; 1 rank or more can train"},
        {"parts=5", "PartSampler: a batch of 24 does not divide into 5 parts of one size"}}) {
    const Ending ending = start({program("elastic_rank"), word}).finish();
    EXPECT_EQ(ending.exit_code, 1);
    EXPECT_EQ(ending.err, "rank 0 failed: " + std::string(text) + "\n");
  }
}

}  // namespace
}  // namespace lockstep::testing
