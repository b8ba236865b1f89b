// The examples that train: the figures that they print, at sizes that take seconds.
#include <cstdlib>
#include <fstream>
#include <iterator>

#include "example_test.h"
#include "tests/multi_rank/training/small_digits.h"

namespace lockstep::testing {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
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

#ifdef __x86_64__
TEST_F(Examples, MultiplyByAvx512WhereMklIsTold) {
  if (!__builtin_cpu_supports("avx512f")) GTEST_SKIP() << "this processor has no AVX-512";
  const std::vector<std::string> words = {program("lockstep"),
                                          "run",
                                          "-np",
                                          "2",
                                          "--mkl-avx512",
                                          program("mnist_horovod_steps"),
                                          "--synthetic",
                                          "--samples",
                                          "200",
                                          "--epochs",
                                          "1"};
  const Ending ending = start(words, {{"MKL_VERBOSE", "1"}}).finish();
  EXPECT_EQ(ending.exit_code, 0) << ending.err;
  EXPECT_THAT(ending.out, HasSubstr("Intel(R) Advanced Vector Extensions 512"));
}
#endif

TEST_F(Examples, ToyModelSaysWhatItsRanksSaidLast) {
  const Ending ending = start({program("toy_model"), "--learning_rate", "nan"}).finish();
  EXPECT_EQ(ending.exit_code, 1);
  EXPECT_THAT(lines_with(ending.err, "toy_model: "), ElementsAre(HasSubstr("toy_model: spawn: rank ")))
      << ending.err;
  EXPECT_THAT(lines_with(ending.err, "[1] "), ElementsAre("[1] Invalid learning rate: nan"))
      << "no stack trace";
}

TEST_F(Examples, ATrainingGoesOnWithoutTheDeadAndWithThoseThatComeBack) {
  const Ending ending = start({program("lockstep"), "run", "-np", "3", "--min-np", "2", "--max-restarts", "1",
                               program("goes_on"), "--kill", "1", "--steps", "2000", "--pause_ms", "5"})
                            .finish();
  EXPECT_EQ(ending.exit_code, 0) << ending.err;
  EXPECT_THAT(ending.out,
              AllOf(HasSubstr("[0] lost at step 1000: "), HasSubstr("[0] rank 0 of 2 goes on at step 1000\n"),
                    ContainsRegex("\\[1\\] rank 2 of 3 goes on at step [0-9]+\n"),
                    HasSubstr("[0] done after 2000 steps, error 0.0000\n"),
                    HasSubstr("[1] done after 2000 steps, error 0.0000\n"),
                    HasSubstr("[2] done after 2000 steps, error 0.0000\n")))
      << ending.err;
}

TEST_F(Examples, ElasticHasTheSameBitsWhoeverDies) {
  const Ending nobody = start({program("elastic"), "--kill", "7"}).finish();
  EXPECT_EQ(nobody.exit_code, 1);
  EXPECT_EQ(nobody.err, "elastic: --kill 7: ranks are 0 to 0\n");
  const Ending alone = start({program("elastic"), "--steps", "200"}).finish();
  EXPECT_EQ(alone.exit_code, 0) << alone.err;
  const auto bits = lines_with(alone.out, "the model's bits: ");
  ASSERT_EQ(bits.size(), 1U) << alone.out;
  const Ending ending = start({program("lockstep"), "run", "--no-prefix", "-np", "3", "--min-np", "1",
                               program("elastic"), "--steps", "200", "--kill", "1"})
                            .finish();
  EXPECT_EQ(ending.exit_code, 0) << ending.err;
  EXPECT_THAT(ending.out,
              AllOf(HasSubstr("step 100: 2 ranks train; came: nobody; went: 1\n"), HasSubstr(bits[0])))
      << ending.err;
}

TEST_F(Examples, AParameterServersTasksCountOnceAndItsPictureIsDrawn) {
  std::optional<double> left;  // the loss with which the training before has ended
  for (const char* staleness : {"0", "none"}) {
    const Ending ending = start({program("lockstep"),
                                 "run",
                                 "--no-prefix",
                                 "--role",
                                 "server:1",
                                 "--role",
                                 "coordinator:1",
                                 "--role",
                                 "worker:2",
                                 "--restart",
                                 "worker",
                                 "--max-restarts",
                                 "100",
                                 program("parameter_server"),
                                 "--tasks",
                                 "100",
                                 "--staleness",
                                 staleness,
                                 "--late_ms",
                                 "20",
                                 "--checkpoint",
                                 folder() / "parameters",
                                 "--csv",
                                 (folder() / staleness).string() + ".csv"})
                              .finish();
    EXPECT_EQ(ending.exit_code, 0) << ending.err;
    EXPECT_THAT(ending.out,
                AllOf(HasSubstr(" pulls, 100 pushes, repeated "),
                      ContainsRegex("100 tasks in [0-9.]+ s: loss 0[.]"), HasSubstr(", given up 0\n")))
        << ending.err;
    const double began = after(ending.out, ", from "), ended = after(ending.out, ": loss ");
    if (left) {
      EXPECT_NEAR(began, *left, 0.1);  // some tasks may be done at the first look
    }
    left = ended;
  }
  const std::string picture = folder() / "losses.svg";
  const Ending drawn =
      start({program("parameter_server"), "--draw",
             (folder() / "0.csv").string() + "," + (folder() / "none.csv").string(), "--svg", picture})
          .finish();
  EXPECT_EQ(drawn.exit_code, 0) << drawn.err;
  EXPECT_THAT(text_in(picture), AllOf(HasSubstr("<polyline"), HasSubstr(">none</text>")));
  const Ending wrong = start({program("parameter_server"), "--draw", "/nowhere.csv"}).finish();
  EXPECT_EQ(wrong.exit_code, 1);
  EXPECT_EQ(wrong.err,
            "parameter_server: '/nowhere.csv' cannot be read, or is no file that --csv has written\n");
}

/// What it says where it was started wrongly: one line why, and one how it is started.
void expect_told_how_to_start(const Ending& ending, const std::string& mark, const std::string& why) {
  EXPECT_EQ(ending.exit_code, 2) << ending.err;
  EXPECT_THAT(
      lines_with(ending.err, mark + "toy_model"),
      ElementsAre(AllOf(StartsWith(mark + "toy_model: "), HasSubstr(why)),
                  mark + "toy_model is started alone, without a launcher, and starts its ranks itself: "
                         "`toy_model --ranks 4`; --help lists all flags."))
      << ending.err;
}

TEST_F(Examples, ToyModelSaysHowItIsStartedWhereALauncherStartsIt) {
  const Ending launched = launch({program("toy_model")}).finish();
  expect_told_how_to_start(launched, "[1] ", "this process is already rank 1 of a job");
  const Ending by_hand = start({program("toy_model")}, {{"RANK", "3"}, {"WORLD_SIZE", "4"}}).finish();
  expect_told_how_to_start(by_hand, "", "this process is already rank 3 of a job");
  const Ending by_mpi =
      start({program("toy_model")}, {{"OMPI_COMM_WORLD_SIZE", "2"}, {"OMPI_COMM_WORLD_RANK", "1"}}).finish();
  expect_told_how_to_start(by_mpi, "", "one of several started by Open MPI");
}

TEST_F(Examples, ToyModelSaysHowItIsStartedWhereItsArgumentsAreWrong) {
  expect_told_how_to_start(start({program("toy_model"), "4"}).finish(), "", "not expected: 4");
  expect_told_how_to_start(start({program("toy_model"), "--ranks", "0"}).finish(), "",
                           "--ranks: Value 0 not in range 1 to ");
  expect_told_how_to_start(start({program("toy_model"), "--ranks", "1000000"}).finish(), "",
                           "not a number of ranks");
}

TEST_F(Examples, ADeviceThatThereIsNotIsNamed) {
  const auto expect_named = [&](std::vector<std::string> words, const std::string& device) {
    const std::string name = words.front();
    words.front() = program(name);
    words.insert(words.end(), {"--device", device});
    const Ending ending = launch(words).finish();
    EXPECT_EQ(ending.exit_code, 1) << name;
    EXPECT_THAT(ending.err, HasSubstr("] " + name + ": the device is \"" + device + "\"")) << ending.err;
  };
  for (const std::string name : {"mnist_horovod_steps", "mnist_gradient_tape", "cifar10_resnet18"})
    expect_named({name, "--synthetic"}, "gpu");
  expect_named({"char_transformer", "--synthetic"}, "cuda:9");
  for (const std::string name :
       {"accumulate", "powersgd", "sync_batch_norm", "sharded_adamw", "elastic", "goes_on", "model_parallel"})
    expect_named({name}, "cuda:9");
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
  EXPECT_LT(after(lines[0], ", "), 4 * parameters + 100);  // what a rank says of its backward is 16 bytes
  EXPECT_GT(after(lines[1], ", "), 0);
  EXPECT_LT(after(lines[1], ", "), 4 * parameters / 20);
  // Matrices thicker than the gradients go as they are.
  const auto thick = lines_of({"powersgd", "--steps", "12", "--rank", "9223372036854775807"});
  EXPECT_EQ(after(thick[1], ", "), after(thick[0], ", "));
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

TEST_F(Examples, AModelOnSeveralRanksHasTheBitsOfOneProcess) {
  const std::string csv = folder() / "times.csv", svg = folder() / "times.svg";
  for (const char* schedule : {"1f1b", "gpipe"}) {
    const auto lines =
        lines_of({"model_parallel", "--image_size", "64", "--batch_size", "16", "--width", "8", "--repeats",
                  "2", "--parts", "2", "8", "--schedule", schedule, "--csv", csv, "--svg", svg});
    ASSERT_THAT(lines, SizeIs(7));
    EXPECT_THAT(
        lines[0],
        ContainsRegex("ResNet-18 on 2 ranks, [0-9]+ \\+ [0-9]+ layers; a batch of 16 images, 64 x 64"));
    const char* const ways[] = {"single", "accumulating, 8 parts", "naive split", "pipelined, 2 parts",
                                "pipelined, 8 parts"};
    for (std::size_t i = 0; i < std::size(ways); ++i) {
      EXPECT_THAT(lines[i + 1], StartsWith("[0] " + std::string(ways[i]) + " "));
      EXPECT_THAT(lines[i + 1], ContainsRegex(" [0-9.]+ s \\+- [0-9.]+ +#+$"));
    }
    EXPECT_THAT(lines[6],
                ContainsRegex(
                    "pipelined is [0-9.]+ times as fast as one process with the same 8 parts; its parameters "
                    "are the same bits"));
  }
  const std::string table = text_in(csv);
  EXPECT_THAT(table, StartsWith("way,micro_batches,seconds,deviation\nsingle,1,"));
  EXPECT_THAT(table, HasSubstr("\npipelined,8,"));
  EXPECT_THAT(text_in(svg),
              AllOf(StartsWith("<svg "), HasSubstr("pipelined, 2 parts"), EndsWith("</svg>\n")));
  const Ending unwritten = start({program("lockstep"), "run", "-np", "2", program("model_parallel"),
                                  "--image_size", "64", "--batch_size", "16", "--width", "8", "--repeats",
                                  "1", "--parts", "8", "--svg", folder() / "none" / "x.svg"})
                               .finish();
  EXPECT_NE(unwritten.exit_code, 0);
  EXPECT_THAT(unwritten.err, HasSubstr("cannot write " + (folder() / "none" / "x.svg").string() +
                                       ": there is no folder " + (folder() / "none").string()));
  const Ending wild = start({program("lockstep"), "run", "-np", "2", program("model_parallel"),
                             "--image_size", "64", "--batch_size", "16", "--width", "8", "--repeats", "1",
                             "--parts", "8", "100", "--learning_rate", "1e30"})
                          .finish();
  EXPECT_EQ(wild.exit_code, 1);
  EXPECT_THAT(wild.out, HasSubstr("left out: pipelined, 100 parts; a batch has 16 images"));
  EXPECT_THAT(wild.err, HasSubstr("after 2 steps the loss is no number; take a smaller --learning_rate"));
}

TEST_F(Examples, ThatDivergeSaySo) {
  for (const char* name : {"mirrored", "central_storage"}) {
    const Ending ending = start({program(name), "--learning_rate", "1e30"}).finish();
    EXPECT_EQ(ending.exit_code, 1);
    EXPECT_EQ(ending.err,
              std::string(name) + ": after 60 steps the loss is no number; take a smaller --learning_rate\n");
  }
  const Ending served =
      start({program("lockstep"), "run", "--no-prefix", "-np", "3", program("parameter_server"), "--tasks",
             "5", "--die_percent", "0", "--late_ms", "0", "--learning_rate", "1e30"})
          .finish();
  EXPECT_EQ(served.exit_code, 1);
  EXPECT_THAT(served.err, ContainsRegex("parameter_server: a task was given up: .*infinite or no number"));
}

TEST_F(Examples, OneProcessTrainsOnSeveralDevices) {
  const std::pair<const char*, double> programs[] = {{"mirrored", 1e-5}, {"central_storage", 0}};
  for (const auto& [name, bound] : programs) {
    const Ending ending = start({program(name), "--devices", "cpu:3", "--batch_size", "25"}).finish();
    EXPECT_EQ(ending.exit_code, 0) << ending.err;
    const auto lines = lines_with(ending.out, "");
    ASSERT_THAT(lines, SizeIs(3)) << ending.out;
    EXPECT_GT(after(lines[0], "loss "), 0);
    EXPECT_LT(after(lines[0], "loss "), 0.4);
    EXPECT_NEAR(after(lines[1], "loss "), after(lines[0], "loss "), 1e-4);

    EXPECT_LE(after(lines[2], "differ by at most "), bound) << name;
    const Ending wrong = start({program(name), "--devices", "tpu"}).finish();
    EXPECT_EQ(wrong.exit_code, 1);
    EXPECT_THAT(wrong.err, HasSubstr("devices \"tpu\": \"tpu\" names none; known are cpu, cpu:N"));
    const Ending twice =
        start({program("lockstep"), "run", "--no-prefix", "-np", "2", program(name)}).finish();
    EXPECT_EQ(twice.exit_code, 1);
    EXPECT_THAT(twice.err,
                HasSubstr(std::string(name) + ": this is one process with several devices: start it "
                                              "without lockstep run, or with -np 1\n"));
  }
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

TEST_F(Examples, CharTransformerIsSpreadInSeveralWays) {
  const auto train = [&](std::vector<std::string> more) {
    const std::vector<std::string> words = {"char_transformer", "--synthetic", "--steps",   "100",
                                            "--width",          "32",          "--context", "32"};
    more.insert(more.begin(), words.begin(), words.end());
    const auto lines = lines_of(std::move(more));
    EXPECT_GE(lines.size(), 4U);
    EXPECT_LT(after(lines[1], "loss "), after(lines[1], "bigram model ")) << lines[1];
  };
  train({"--spread", "tensor"});
  train({"--spread", "diloco", "--every", "20"});
  train({"--spread", "pipeline", "--micro_batches", "3"});
  const auto refused = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {program("char_transformer"), "--synthetic"});
    return launch(more).finish();
  };
  EXPECT_THAT(refused({"--spread", "tensor", "--heads", "1", "--width", "32"}).err,
              HasSubstr("--heads has to be a multiple of the number of ranks"));
  EXPECT_THAT(refused({"--spread", "diloco", "--steps", "30"}).err,
              HasSubstr("--steps has to be a multiple of --every"));
  EXPECT_EQ(refused({"--spread", "both"}).exit_code, 2);
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

TEST_F(Examples, HorovodsStepsLearnAndGoOn) {
  const std::string file = folder() / "mnist.ckpt";
  const auto train = [&](std::vector<std::string> more) {
    const std::vector<std::string> words = {"mnist_horovod_steps", "--synthetic", "--samples",  "2000",
                                            "--learning_rate",     "0.05",        "--momentum", "0.9"};
    more.insert(more.begin(), words.begin(), words.end());
    return lines_of(std::move(more));
  };
  const auto lines = train({"--epochs", "2", "--checkpoint", file});
  EXPECT_THAT(lines, ElementsAre(StartsWith("[0] epoch  1/2  loss "), StartsWith("[0] epoch  2/2  loss ")));
  EXPECT_LT(after(lines[1], "loss "), after(lines[0], "loss "));
  EXPECT_GT(after(lines[1], "accuracy "), 0.5);  // chance is 0.1
  const auto more = train({"--epochs", "3", "--checkpoint", file, "--resume"});
  EXPECT_THAT(more, ElementsAre(StartsWith("[0] epoch  3/3  loss ")));
  EXPECT_LT(after(more[0], "loss "), after(lines[1], "loss "));
  const auto halves = train({"--epochs", "2", "--fp16-allreduce"});
  EXPECT_NEAR(after(halves[1], "loss "), after(lines[1], "loss "), 0.05);
  EXPECT_LT(after(train({"--epochs", "2", "--use_adasum"})[1], "loss "), 2.25);  // ln 10 is 2.30
}

TEST_F(Examples, TheTapeLearns) {
  const auto lines = lines_of(
      {"mnist_gradient_tape", "--synthetic", "--samples", "2000", "--batch_size", "64", "--epochs", "2"});
  EXPECT_THAT(lines, ElementsAre(StartsWith("[0] epoch  1/2  loss "), StartsWith("[0] epoch  2/2  loss ")));
  EXPECT_LT(after(lines[1], "loss "), after(lines[0], "loss "));
  EXPECT_GT(after(lines[1], "accuracy "), 0.5);
}

TEST_F(Examples, MnistThatIsMissingIsNamedWithWhereToGetIt) {
  const Ending ending = launch({program("mnist_horovod_steps"), "--data", folder()}).finish();
  EXPECT_EQ(ending.exit_code, 1);
  for (const std::string rank : {"[0] mnist_horovod_steps: ", "[1] mnist_horovod_steps: "}) {
    EXPECT_THAT(lines_with(ending.err, rank),
                ElementsAre(AllOf(HasSubstr(folder().string() + "/train-images-idx3-ubyte"),
                                  HasSubstr("https://ossci-datasets.s3.amazonaws.com/mnist/"),
                                  EndsWith("or train with --synthetic"))))
        << ending.err;
  }
}

class Cifar10Resnet18 : public Examples {
 protected:
  /// Of one epoch of two steps, under any launcher.
  std::vector<std::string> with_flags(std::vector<std::string> words) const {
    for (const std::string& flag : {std::string("--synthetic"), std::string("--samples"), std::string("32"),
                                    std::string("--batch-size=8"), std::string("--num_epochs=1"),
                                    "--model-dir=" + (folder() / "new" / "models").string()})
      words.push_back(flag);
    return words;
  }
  std::string file() const { return folder() / "new" / "models" / "resnet_distributed.pth"; }
};

TEST_F(Cifar10Resnet18, SavesBeforeEachEpochAndResumes) {
  /// What rank 0 says of accuracy; each rank says how long its epoch took besides, and nothing else.
  const auto train = [&](std::vector<std::string> words) {
    words = with_flags(std::move(words));
    words.front() = program(words.front());
    const Ending ending = launch(std::move(words)).finish();
    EXPECT_EQ(ending.exit_code, 0) << ending.err;
    for (const std::string rank : {"0", "1"}) {
      EXPECT_THAT(lines_with(ending.out, "[" + rank + "] Local rank "),
                  ElementsAre(ContainsRegex("^\\[" + rank + "\\] Local rank " + rank +
                                            ", epoch 0: [0-9.]+ seconds, [0-9]+ images/s$")));
    }
    EXPECT_THAT(lines_with(ending.out, "[1] "), SizeIs(1));
    return lines_with(ending.out, "[0] epoch ");
  };
  const auto lines = train({"cifar10_resnet18"});
  EXPECT_THAT(lines, ElementsAre(AllOf(StartsWith("[0] epoch 0  accuracy 0."), EndsWith("saved " + file())),
                                 StartsWith("[0] epoch 1  accuracy 0.")));
  const auto resumed = train({"cifar10_resnet18", "--resume"});
  ASSERT_THAT(resumed, SizeIs(2));
  EXPECT_EQ(after(resumed[0], "accuracy "), after(lines[1], "accuracy "));
}

TEST_F(Cifar10Resnet18, NamesACifarThatIsMissingOrOfAnotherSize) {
  std::filesystem::create_directory(folder() / "short");
  for (int i = 1; i <= 5; ++i)
    std::ofstream(folder() / "short" / ("data_batch_" + std::to_string(i) + ".bin"))
        << std::string(3074, 'a');
  const std::vector<std::pair<std::string, std::vector<std::string>>> folders = {
      {"none", {"none", "https://www.cs.toronto.edu/~kriz/cifar.html", "or train with --synthetic"}},
      {"short", {"data_batch_1.bin: at byte 3073 expected a record of 3073 bytes, found 1 bytes"}}};
  for (const auto& [name, says] : folders) {
    const Ending ending =
        launch({program("cifar10_resnet18"), "--data", folder() / name, "--model_dir", folder() / "models"})
            .finish();
    EXPECT_EQ(ending.exit_code, 1);
    for (const std::string& part : says) EXPECT_THAT(ending.err, HasSubstr(part));
  }
  EXPECT_FALSE(std::filesystem::exists(folder() / "models"));
}

TEST_F(Cifar10Resnet18, StartsUnderTorchsLaunchersAndItsFileIsPythons) {
  const auto python = peer_python("torch");
  if (!python) GTEST_SKIP() << "torch is not installed: script/bootstrap --peers torch";
  const Variables variables = {{"PYTHONDONTWRITEBYTECODE", "1"}, {"OMP_NUM_THREADS", "1"}};
  const auto launched_by = [&](const std::string& launcher, std::vector<std::string> more) {
    std::vector<std::string> words = {*python, "-m", launcher, "--nproc_per_node", "2", "--master_addr",
                                      "127.0.0.1", "--master_port", std::to_string(port()),
                                      // It leaves a folder in /tmp otherwise.
                                      "--log_dir", folder() / "logs"};
    words.insert(words.end(), more.begin(), more.end());
    const Ending ending = start(with_flags(words), variables).finish();
    EXPECT_EQ(ending.exit_code, 0) << ending.err;
    return lines_with(ending.out, "epoch ");  // of local rank 0 alone, or there are twice as many
  };
  // This one starts Python scripts only, to which it passes --local-rank.
  std::ofstream(folder() / "start.py")
      << "import os, sys\n"
      << "assert sys.argv[1].startswith('--local'), sys.argv\n"
      << "os.execv('" << program("cifar10_resnet18") << "', ['cifar10_resnet18', *sys.argv[1:]])\n";
  const auto first = launched_by("torch.distributed.launch", {folder() / "start.py"});
  ASSERT_THAT(first, SizeIs(2));
  const Ending read = start({*python, READ_RESNET, file()}, variables).finish();
  EXPECT_EQ(read.exit_code, 0) << read.out << read.err;
  // The file is Python's now, as its DistributedDataParallel names things.
  const auto second =
      launched_by("torch.distributed.run", {"--no_python", program("cifar10_resnet18"), "--resume"});
  ASSERT_THAT(second, SizeIs(2));
  EXPECT_EQ(after(second[0], "accuracy "), after(first[1], "accuracy "));
}

TEST_F(Cifar10Resnet18, TakesItsLocalRankFromEitherFlagUnlessItIsAnothers) {
  const auto with = [&](const std::string& flag) {
    return start(with_flags({program("cifar10_resnet18"), flag}), {{"OMP_NUM_THREADS", "1"}}).finish();
  };
  for (const std::string flag : {"--local_rank=0", "--local-rank=0"}) {
    const auto ending = with(flag);
    EXPECT_EQ(ending.exit_code, 0) << ending.err;
    EXPECT_THAT(lines_with(ending.out, "epoch "), SizeIs(2));
  }
  const auto other = with("--local_rank=1");
  EXPECT_EQ(other.exit_code, 1);
  EXPECT_EQ(
      other.err,
      "cifar10_resnet18: --local_rank is 1, but this is local rank 0; leave the flag to the launcher\n");
}

TEST_F(Cifar10Resnet18, NamesAFolderThatCannotBeMade) {
  const Ending ending =
      launch({program("cifar10_resnet18"), "--synthetic", "--model_dir", "/dev/null/here"}).finish();
  EXPECT_EQ(ending.exit_code, 1);
  EXPECT_THAT(
      lines_with(ending.err, "[0] "),
      ElementsAre("[0] cifar10_resnet18: cannot make the folder /dev/null/here: Not a directory; give "
                  "another --model_dir"));
}

TEST_F(Examples, ImagesOfAnotherSizeAreNamedWithTheirFile) {
  write_digits(folder(), 10);
  for (const std::string part : {"images-idx3-ubyte", "labels-idx1-ubyte"})
    std::filesystem::copy(folder() / ("test-" + part), folder() / ("t10k-" + part));
  const Ending ending = launch({program("mnist_gradient_tape"), "--data", folder()}).finish();
  EXPECT_EQ(ending.exit_code, 1);
  EXPECT_THAT(ending.err,
              HasSubstr("/train: expected images [1, 28, 28], found [1, 8, 8]; take the four files"));
}

TEST_F(Examples, DigitsLeavesItsCurveBesideThoseOfOtherRuns) {
  write_digits(folder(), 10);
  const auto curves = folder() / "curves";
  const std::vector<std::string> words = {program("digits"), "--data", folder(), "--epochs", "2",
                                          "--curves",        curves};
  EXPECT_EQ(launch(words).finish().exit_code, 0);
  EXPECT_EQ(start(words).finish().exit_code, 0);
  EXPECT_EQ(start(words).finish().exit_code, 0) << "in the place of the one before";
  std::ifstream file(curves / "curves.svg");
  const std::string picture{std::istreambuf_iterator<char>(file), {}};
  const auto one = picture.find(">1 process<"), two = picture.find(">2 processes<");
  EXPECT_LT(one, two);
  EXPECT_NE(two, std::string::npos);
  std::ofstream(curves / "2.history") << "garbage";
  const Ending ending = start(words).finish();
  EXPECT_EQ(ending.exit_code, 1);
  EXPECT_THAT(ending.err, HasSubstr("2.history"));
}

// 40 images, 8 a rank and step.
TEST_F(Examples, AProfileOfDigitsHasEachOfItsStepsWithAllGradients) {
  write_digits(folder(), 10);
  for (const auto& [ranks, steps] : std::vector<std::pair<int, int>>{{2, 6}, {4, 4}}) {
    const auto place = folder() / std::to_string(ranks), timeline = folder() / "timeline.json";
    const Ending ending =
        start({program("lockstep"), "run", "-np", std::to_string(ranks), "--profile", place, "--timeline",
               timeline, program("digits"), "--data", folder(), "--epochs", "2", "--batch_size", "8"})
            .finish();
    ASSERT_EQ(ending.exit_code, 0) << ending.err;
    // 71,754 parameters, and gaps between them.
    EXPECT_THAT(ending.err,
                ContainsRegex("\n  training step +" + std::to_string(steps) + " +2870[0-9][0-9]\\.0 "));
    EXPECT_THAT(ending.err, ContainsRegex("\n  training: " + std::to_string(steps) + " steps of "));
    std::ifstream file(timeline);
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    int passes = 0;
    for (std::size_t at = 0; (at = text.find("\"forward, backward\"", at)) != std::string::npos; ++at)
      ++passes;
    EXPECT_EQ(passes, ranks * steps);
    EXPECT_THAT(text, HasSubstr("\"name\":\"forward\""));
  }
}

TEST_F(Examples, ATrainerSaysItsImagesPerSecondInTimelines) {
  write_digits(folder(), 10);
  const auto timeline = folder() / "timeline.json";
  const Ending ending = start({program("lockstep"), "run", "-np", "2", "--timeline", timeline,
                               program("trainer"), "--data", folder(), "--epochs", "1000"})
                            .finish();
  ASSERT_EQ(ending.exit_code, 0) << ending.err;
  for (const char* rank : {"0", "1"})
    EXPECT_THAT(text_in(timeline),
                ContainsRegex(std::string(R"("ph":"C","pid":)") + rank +
                              R"(,"name":"images/s","ts":[0-9.]+,"args":\{"value":[1-9])"));
}

TEST_F(Examples, LabelsThatAreNoClassAreNamedWithTheirPlace) {
  write_digits(folder(), 11);
  const Ending ending = launch({program("trainer"), "--data", folder()}).finish();
  EXPECT_EQ(ending.exit_code, 1);
  EXPECT_THAT(ending.err,
              ContainsRegex("-labels-idx1-ubyte: at byte [0-9]+ expected a label of 0 to 9, found 10 "));
}

TEST_F(Examples, NumbersBelowZeroAreRefused) {
  for (const auto& [name, flag] :
       std::initializer_list<std::pair<std::string, std::string>>{{"trainer", "--epochs"},
                                                                  {"mnist_horovod_steps", "--epochs"},
                                                                  {"cifar10_resnet18", "--workers"},
                                                                  {"powersgd", "--random_seed"}}) {
    const Ending ending = start({program(name), flag, "-1"}).finish();
    EXPECT_EQ(ending.exit_code, 2) << name;
    EXPECT_THAT(ending.err, HasSubstr(flag + ": Value -1 not in range "));
  }
  for (const std::string value : {"-1", "nan", "much"}) {
    const Ending ending = start({program("mirrored"), "--noise", value}).finish();
    EXPECT_EQ(ending.exit_code, 2) << value;
    EXPECT_THAT(ending.err, HasSubstr("--noise: '" + value + "' is no number from 0 on"));
  }
}

class Help : public ExampleTest, public ::testing::WithParamInterface<const char*> {};
INSTANTIATE_TEST_SUITE_P(Of, Help,
                         ::testing::Values("toy_model", "accumulate", "sync_batch_norm", "powersgd",
                                           "sharded_adamw", "char_transformer", "mnist_horovod_steps",
                                           "mnist_gradient_tape", "cifar10_resnet18", "mirrored",
                                           "central_storage", "model_parallel"),
                         [](const auto& info) { return std::string(info.param); });

TEST_P(Help, ShowsTheDefaults) {
  const Ending ending = start({program(GetParam()), "--help"}).finish();
  EXPECT_EQ(ending.exit_code, 0);
  // As earlier and as later versions of CLI11 write it.
  EXPECT_THAT(ending.out, ContainsRegex("--random_seed UINT:0 or more(=| \\[)[0-9]+"));
}

}  // namespace
}  // namespace lockstep::testing
