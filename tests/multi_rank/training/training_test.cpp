// Training on processes: over shared memory, and over TCP between two hosts.
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "small_digits.h"
#include "tests/support/job_test.h"

namespace lockstep::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;

class Training : public JobTest {
 protected:
  Ending launch(int ranks, std::vector<std::string> words) const {
    words.insert(words.begin(), {program("lockstep"), "run", "-np", std::to_string(ranks), "--"});
    return start(words).finish();
  }

  std::vector<Ending> on_two_hosts(int ranks, const std::vector<std::string>& words) const {
    const Variables variables = {{"MASTER_ADDR", hosts().address(0)},
                                 {"LOCKSTEP_SECRET_FILE", secret_file("ours")}};
    std::vector<Process> processes;
    for (int rank = 0; rank < ranks; ++rank) {
      const int host = rank < ranks / 2 ? 0 : 1;
      processes.push_back(start(words, by_hand(rank, ranks, variables), hosts().network(host)));
    }
    return finish(processes);
  }
};

class TrainingOn : public Training, public ::testing::WithParamInterface<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, TrainingOn, ::testing::Values(2, 3, 4));

TEST_P(TrainingOn, OneHostIsWhatOneProcessDoes) {
  const auto ending = launch(GetParam(), {program("training_rank"), "equivalence"});
  EXPECT_EQ(ending.exit_code, 0) << ending.err;
  EXPECT_THAT(lines_with(ending.out, "["), ::testing::SizeIs(GetParam())) << ending.out << ending.err;
  for (const auto& line : lines_with(ending.out, "["))
    EXPECT_THAT(line, HasSubstr("passed 16 trials")) << ending.err;
}

TEST_P(TrainingOn, TwoHostsIsWhatOneProcessDoes) {
  REQUIRE_TWO_HOSTS();
  for (const auto& ending : on_two_hosts(GetParam(), {program("training_rank"), "equivalence"})) {
    EXPECT_EQ(ending.exit_code, 0) << ending.err;
    EXPECT_THAT(ending.out, HasSubstr("passed 16 trials")) << ending.err;
  }
}

class SpreadModels : public Training, public ::testing::WithParamInterface<const char*> {};
INSTANTIATE_TEST_SUITE_P(By, SpreadModels,
                         ::testing::Values("pipeline", "interleaved", "tensor", "grid", "diloco"),
                         [](const auto& info) { return std::string(info.param); });

TEST_P(SpreadModels, AreTrainedAsByOneProcess) {
  const std::string same = std::string(GetParam()) + ": the same\n";
  for (const int ranks : {1, 2, 4}) {
    const auto ending = launch(ranks, {program("strategy_rank"), "same", GetParam()});
    EXPECT_EQ(ending.exit_code, 0) << ending.err;
    EXPECT_EQ(ending.out, "[0] " + same) << ending.err;
  }
  REQUIRE_TWO_HOSTS();
  const auto endings = on_two_hosts(4, {program("strategy_rank"), "same", GetParam()});
  for (const auto& ending : endings) EXPECT_EQ(ending.exit_code, 0) << ending.err;
  EXPECT_EQ(endings[0].out, same);
}

TEST_F(Training, APipelineOfParallelLayersIsToldItsOtherParts) {
  for (const auto& [what, text] :
       {std::pair(
            "bare",
            "of 0.down.weight each rank of a group has a part: PipelineOptions::tensor is to be that group"),
        {"file",
         "layers that are tensor-parallel, too, have no file of the whole model: save_whole_state_dict(path, "
         "grid.tensor, *pipe.module()) makes one of each stage"}}) {
    const auto ending = launch(2, {program("strategy_rank"), "refused", what});
    EXPECT_EQ(ending.exit_code, 1);
    for (const char* rank : {"[0] ", "[1] "})
      EXPECT_THAT(ending.err, HasSubstr(std::string(rank) + "strategy_rank: Pipeline: " + text));
  }
}

/// A column of what torch's DistributedDataParallel and ZeroRedundancyOptimizer made of it.
std::vector<double> losses_of_torch(const std::string& column) {
  std::ifstream file(TORCH_LOSSES);
  std::string line, word;
  std::getline(file, line);  // who made it
  std::getline(file, line);
  std::istringstream names(line);
  std::size_t place = 0;
  while (names >> word && word != column) ++place;
  std::vector<double> losses;
  while (std::getline(file, line)) {
    std::istringstream numbers(line);
    double loss = 0;
    for (std::size_t i = 0; i <= place; ++i) numbers >> loss;
    losses.push_back(loss);
  }
  return losses;
}

TEST_F(Training, HasTheLossesThatTorchHas) {
  for (const std::string optimizer : {"sgd", "adamw"}) {
    for (const std::string how : {"ddp", "sharded"}) {
      const auto expected = losses_of_torch(optimizer + (how == "ddp" ? "" : "_zero"));
      const auto ending = launch(2, {program("training_rank"), "losses", optimizer, how});
      const auto lines = lines_with(ending.out, "[0] loss ");
      ASSERT_EQ(expected.size(), 50U);
      ASSERT_EQ(lines.size(), 50U) << ending.err;
      for (std::size_t step = 0; step < 50; ++step)
        EXPECT_NEAR(std::stod(lines[step].substr(9)), expected[step], 1e-5 * expected[step])
            << optimizer << ", " << how << ", step " << step;
    }
  }
}

TEST_F(Training, OnOneHostNoticesEverySabotage) {
  const auto ending = launch(2, {program("training_rank"), "sabotage"});
  EXPECT_THAT(ending.out, AllOf(HasSubstr("[0] noticed 5 sabotages"), HasSubstr("[1] noticed 5 sabotages")))
      << ending.err;
}

TEST_F(Training, OnTwoHostsNoticesEverySabotage) {
  REQUIRE_TWO_HOSTS();
  for (const auto& ending : on_two_hosts(2, {program("training_rank"), "sabotage"})) {
    EXPECT_THAT(ending.out, HasSubstr("noticed 5 sabotages")) << ending.err;
  }
}

TEST_F(Training, NamesARankThatReturnsInTheMiddle) {
  const auto ending = launch(3, {program("training_rank"), "return-in-training"});
  EXPECT_NE(ending.exit_code, 0);
  EXPECT_THAT(ending.err, HasSubstr("rank 1")) << ending.err;
  EXPECT_THAT(ending.err, HasSubstr("left")) << ending.err;
}

TEST_F(Training, GoesOnWithItsHeapAfterFailures) {
  const Ending job = start({program("lockstep"), "run", "-np", "2", "--no-prefix", "--restart", "all",
                            program("heap_rank"), "2"})
                         .finish();
  EXPECT_EQ(job.exit_code, 0) << job.err;
  EXPECT_THAT(
      job.out,
      MatchesRegex(
          "heap: all_reduce of 4 MiB takes [0-9]+ us in the first world, [0-9]+ us after 2 failures\n"));
}

TEST_F(Training, OfTheDigitsRefusesOtherLabels) {
  write_digits(folder(), 12);
  const auto ending = launch(2, {program("digits"), "--data", folder()});
  EXPECT_EQ(ending.exit_code, 1);
  EXPECT_THAT(lines_with(ending.err, "[0] "),
              ::testing::ElementsAre(AllOf(HasSubstr("train: expected images of 8 x 8 with labels 0 to 9"),
                                           HasSubstr("with label 11; script/make-digits makes the digits"))));
}

TEST_F(Training, OfTheDigitsResumesWhereItStopped) {
  const auto folder = this->folder();
  write_digits(folder, 10);
  const auto digits = [&](const std::string& file, std::vector<std::string> more) {
    more.insert(more.begin(), {program("digits"), "--data", folder, "--checkpoint", folder / file});
    const auto ending = launch(2, more);
    EXPECT_EQ(ending.exit_code, 0) << ending.err;
    return ending.out;
  };
  digits("whole.ckpt", {"--epochs", "4"});
  digits("parts.ckpt", {"--epochs", "2"});
  EXPECT_THAT(digits("parts.ckpt", {"--epochs", "4", "--resume"}), HasSubstr("epoch   3/4"));
  const auto whole =
      start({program("training_rank"), "same", folder / "whole.ckpt", folder / "parts.ckpt"}).finish();
  EXPECT_THAT(whole.out, HasSubstr("same")) << whole.err;
}

class TrainerExample : public Training {
 protected:
  Ending trainer(std::vector<std::string> more) const {
    more.insert(more.begin(), {program("trainer"), "--data", folder()});
    const auto ending = launch(2, more);
    EXPECT_EQ(ending.exit_code, 0) << ending.err;
    return ending;
  }
};

TEST_F(TrainerExample, LeavesACurveAndGoesOnFromItsCheckpoint) {
  write_digits(folder(), 10);
  const std::vector<std::string> files = {"--curve", folder() / "curve.svg", "--checkpoint",
                                          folder() / "model.ckpt", "--resume"};
  const auto with = [&files](std::vector<std::string> words) {
    words.insert(words.end(), files.begin(), files.end());
    return words;
  };
  EXPECT_THAT(lines_with(trainer(with({"--epochs", "2"})).out, "[0] epoch "),
              ::testing::ElementsAre(HasSubstr("epoch 1/2  loss "), HasSubstr("epoch 2/2  loss ")));
  const auto resumed = trainer(with({"--epochs", "3"}));
  EXPECT_THAT(lines_with(resumed.out, "[0] epoch "),
              ::testing::ElementsAre(AllOf(HasSubstr("epoch 3/3  loss "), HasSubstr("  accuracy "))));
  EXPECT_THAT(lines_with(resumed.out, "[1]"), ::testing::IsEmpty()) << "rank 0 speaks for all";
  std::ifstream curve(folder() / "curve.svg");
  const std::string svg{std::istreambuf_iterator<char>(curve), {}};
  EXPECT_THAT(svg, AllOf(HasSubstr("Handwritten digits"), HasSubstr("eval loss"), HasSubstr("</svg>")));
}

TEST_F(TrainerExample, IsReadByTensorBoard) {
  const auto python = peer_python("tensorboard");
  if (!python) GTEST_SKIP() << "TensorBoard is not installed: script/bootstrap --peers tensorboard";
  write_digits(folder(), 10);
  const auto trained = trainer({"--epochs", "2", "--tensorboard", folder() / "runs"});
  const auto read = start({*python, READ_EVENTS, folder() / "runs"}).finish();
  ASSERT_EQ(read.exit_code, 0) << read.err;
  for (const std::string tag :
       {"accuracy/eval", "images_per_second", "learning_rate", "loss/eval", "loss/train"})
    EXPECT_THAT(lines_with(read.out, tag + " "), ::testing::SizeIs(2)) << read.out;
  // 20 images for each of 2 ranks are one step an epoch.
  const auto shown = lines_with(trained.out, "[0] epoch 2/2  loss ");
  const auto found = lines_with(read.out, "loss/train 2 ");
  ASSERT_EQ(shown.size(), 1U) << trained.out;
  ASSERT_EQ(found.size(), 1U) << read.out;
  const auto number_behind = [](const std::string& line, const std::string& words) {
    return std::stod(line.substr(words.size()));
  };
  const double loss = number_behind(shown[0], "[0] epoch 2/2  loss ");
  EXPECT_NEAR(number_behind(found[0], "loss/train 2 "), loss, 1e-3 * loss);
}

}  // namespace
}  // namespace lockstep::testing
