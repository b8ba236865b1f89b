// The examples that train: the figures that they print, at sizes that take seconds.
#include <cstdlib>
#include <fstream>

#include "example_test.h"

namespace lockstep::testing {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::StartsWith;
using ::testing::UnorderedElementsAre;

/// The number that follows the first `name` in `line`; -1 if there is none.
double after(const std::string& line, const std::string& name) {
  const auto found = line.find(name);
  return found == std::string::npos ? -1 : std::strtod(line.c_str() + found + name.size(), nullptr);
}

class Examples : public ExampleTest {
 protected:
  /// What a job that ends well prints: rank 0's lines, since no other rank prints any.
  std::vector<std::string> lines_of(std::vector<std::string> words) const {
    words.front() = program(words.front());
    const Ending ending = launch(std::move(words)).finish();
    EXPECT_EQ(ending.exit_code, 0) << ending.err;
    EXPECT_THAT(lines_with(ending.out, "[1] "), IsEmpty());
    return lines_with(ending.out, "[0] ");
  }
};

TEST_F(Examples, ToyModelStartsItsRanksAndTheirReplicasAreEqual) {
  const Ending ending = start({program("toy_model")}).finish();
  EXPECT_EQ(ending.exit_code, 0) << ending.err;
  EXPECT_THAT(
      lines_with(ending.out, ""),
      UnorderedElementsAre(
          AllOf(StartsWith("[0] rank 0 of 2: its own loss is "), EndsWith(", and the replicas are equal")),
          AllOf(StartsWith("[1] rank 1 of 2: its own loss is "), EndsWith(", and the replicas are equal"))));
  // Each has samples of its own.
  EXPECT_NE(after(lines_with(ending.out, "[0]").at(0), "loss is "),
            after(lines_with(ending.out, "[1]").at(0), "loss is "));
}

TEST_F(Examples, ToyModelSaysWhatItsRanksSaidLast) {
  const Ending ending = start({program("toy_model"), "--learning_rate", "nan"}).finish();
  EXPECT_EQ(ending.exit_code, 1);
  EXPECT_THAT(lines_with(ending.err, "toy_model: "), ElementsAre(HasSubstr("toy_model: spawn: rank ")))
      << ending.err;
  EXPECT_THAT(ending.err, HasSubstr("Invalid learning rate: nan"));
}

TEST_F(Examples, AccumulatingIsWhatOneLargeBatchIs) {
  const auto lines = lines_of({"accumulate", "--steps", "20"});
  ASSERT_THAT(lines, SizeIs(3));
  EXPECT_THAT(lines[0], AllOf(StartsWith("[0]   4 x   8 samples a rank: loss "),
                              EndsWith("averaged over ranks 20 times")));
  EXPECT_THAT(lines[1], AllOf(StartsWith("[0]   1 x  32 samples a rank: loss "),
                              EndsWith("averaged over ranks 20 times")));
  EXPECT_NEAR(after(lines[0], "loss "), after(lines[1], "loss "), 1e-4);
  EXPECT_GT(after(lines[0], "loss "), 0);
  EXPECT_GE(after(lines[2], "differ by at most "), 0);
  EXPECT_LT(after(lines[2], "differ by at most "), 1e-5);
}

TEST_F(Examples, SynchronisedBatchNormHasTheWholeBatchsStatistics) {
  const auto lines = lines_of({"sync_batch_norm"});
  ASSERT_THAT(lines, SizeIs(3));
  EXPECT_THAT(lines, ElementsAre(StartsWith("[0] one process, whole batch"),
                                 StartsWith("[0] each rank its own"), StartsWith("[0] synchronised")));
  for (const char* figure : {"means ", "variances ", "parameters "}) {
    EXPECT_GT(after(lines[1], figure), 1e-3) << figure;  // the parts of a batch are not alike
    EXPECT_GE(after(lines[2], figure), 0) << figure;
    EXPECT_LT(after(lines[2], figure), 1e-5) << figure;
  }
  EXPECT_NEAR(after(lines[2], "loss "), after(lines[0], "loss "), 2e-4);
}

TEST_F(Examples, PowerSgdLearnsAsWellWithFewBytes) {
  const auto lines = lines_of({"powersgd"});
  ASSERT_THAT(lines, SizeIs(2));
  EXPECT_THAT(lines, ElementsAre(StartsWith("[0] whole gradients: "), StartsWith("[0] PowerSGD: ")));
  const double whole = after(lines[0], "loss "), thin = after(lines[1], "loss ");
  EXPECT_GT(whole, 0);
  EXPECT_LT(whole, 0.1);  // it begins with 0.4
  EXPECT_LT(thin, 1.3 * whole);
  const double parameters = 64 * 256 + 256 * 256 + 256 * 8 + 256 + 256 + 8;
  EXPECT_GE(after(lines[0], ", "), 4 * parameters);
  EXPECT_LT(after(lines[0], ", "), 4 * parameters + 100);  // whether a rank has something to say is 8 bytes
  EXPECT_GT(after(lines[1], ", "), 0);
  EXPECT_LT(after(lines[1], ", "), 4 * parameters / 20);
}

TEST_F(Examples, ShardedAdamWKeepsItsStateOnceForAllRanks) {
  const auto lines = lines_of({"sharded_adamw", "--steps", "50"});
  ASSERT_THAT(lines, SizeIs(2));
  EXPECT_THAT(lines,
              ElementsAre(StartsWith("[0] DistributedDataParallel"), StartsWith("[0] ShardedOptimizer")));
  EXPECT_NEAR(after(lines[1], "loss "), after(lines[0], "loss "), 1e-3);
  EXPECT_LT(after(lines[1], "loss "), 0.3);  // it begins with 0.4
  const double state = 675'904;              // two f32 for each of 84,488 parameters
  EXPECT_THAT(lines[0], EndsWith(": 675904 675904 bytes, together 1351808"));
  EXPECT_EQ(after(lines[1], "together "), state);
  EXPECT_NEAR(after(lines[1], "each rank: "), state / 2, 0.05 * state);
}

TEST_F(Examples, CharTransformerLearnsMoreThanBigrams) {
  const std::string gpl = "/usr/share/common-licenses/GPL-3";
  if (!std::filesystem::exists(gpl)) GTEST_SKIP() << gpl << " is not there: this is no Debian";
  const auto lines = lines_of(
      {"char_transformer", "--text", gpl, "--context", "32", "--steps", "200", "--learning_rate", "6e-3"});
  ASSERT_GE(lines.size(), 5U);
  EXPECT_THAT(lines[0], StartsWith("[0] step 100/200  loss "));
  const std::string& verdict = lines[2];
  EXPECT_THAT(verdict, StartsWith("[0] validation loss "));
  EXPECT_GT(after(verdict, "loss "), 1);
  EXPECT_LT(after(verdict, "loss "), after(verdict, "bigram model ") - 0.2);
  EXPECT_EQ(lines[3], "[0] it writes:");
}

TEST_F(Examples, CharTransformerMakesUpATextOfItsOwn) {
  const auto lines =
      lines_of({"char_transformer", "--synthetic", "--steps", "100", "--width", "32", "--context", "32"});
  ASSERT_GE(lines.size(), 4U);
  EXPECT_LT(after(lines[1], "loss "), after(lines[1], "bigram model "));
}

TEST_F(Examples, CharTransformerRefusesTextsThatAreMissingEmptyOrShort) {
  const std::vector<std::pair<std::string, std::vector<std::string>>> texts = {
      {"missing", {"cannot open the text ", "/missing (check its path and permissions): No such file"}},
      {"empty",
       {"empty: found 0 characters, expected at least 650", "take a longer text or a smaller --context"}},
      {"short", {"short: found 649 characters, expected at least 650"}},
      {"folder", {"folder: expected the text, found a directory"}},
  };
  std::ofstream(folder() / "empty").flush();
  std::ofstream(folder() / "short") << std::string(649, 'a');
  std::filesystem::create_directory(folder() / "folder");
  for (const auto& [name, says] : texts) {
    const Ending ending = launch({program("char_transformer"), "--text", folder() / name}).finish();
    EXPECT_EQ(ending.exit_code, 1) << name;
    for (const char* rank : {"[0] char_transformer: ", "[1] char_transformer: "}) {
      const auto lines = lines_with(ending.err, rank);
      ASSERT_THAT(lines, SizeIs(1)) << ending.err;
      for (const std::string& part : says) EXPECT_THAT(lines.front(), HasSubstr(part));
    }
  }
}

TEST_F(Examples, CharTransformerRefusesFlagsThatDoNotFit) {
  EXPECT_EQ(launch({program("char_transformer")}).finish().exit_code, 2);
  EXPECT_EQ(launch({program("char_transformer"), "--synthetic", "--text", "a"}).finish().exit_code, 2);
  const Ending ending = launch({program("char_transformer"), "--synthetic", "--heads", "3"}).finish();
  EXPECT_EQ(ending.exit_code, 1);
  EXPECT_THAT(ending.err, HasSubstr("--width has to be a multiple of --heads"));
}

class Help : public ExampleTest, public ::testing::WithParamInterface<const char*> {};
INSTANTIATE_TEST_SUITE_P(Of, Help,
                         ::testing::Values("toy_model", "accumulate", "sync_batch_norm", "powersgd",
                                           "sharded_adamw", "char_transformer"),
                         [](const auto& info) { return std::string(info.param); });

TEST_P(Help, ShowsTheDefaults) {
  const Ending ending = start({program(GetParam()), "--help"}).finish();
  EXPECT_EQ(ending.exit_code, 0);
  // As earlier and as later versions of CLI11 write it.
  EXPECT_THAT(ending.out, AnyOf(HasSubstr("--random_seed UINT=0 "), HasSubstr("--random_seed UINT [0] ")));
}

}  // namespace
}  // namespace lockstep::testing
