// Each example that trains, with a rank that is killed, stops, throws or has gradients that are no numbers:
// the others name it. Nothing in an example is there for these tests: signals come from outside, and flags
// that only one rank has do the rest.
#include <signal.h>

#include <cstdlib>
#include <thread>

#include "example_test.h"
#include "lockstep/base/deadline.h"
#include "tests/multi_rank/training/small_digits.h"

namespace lockstep::testing {
namespace {

using ::testing::Contains;
using ::testing::ContainsRegex;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

struct Example {
  const char* name;
  const char* flags;           // of a training that does not end
  const char* too_much;        // of one that needs more memory than there is, or other data
  const char* not_a_number;    // of one that makes gradients that are no numbers
  const char* timeout = "5s";  // longer than what a rank may do while the others wait
};
std::ostream& operator<<(std::ostream& out, const Example& example) { return out << example.name; }

const Example examples[] = {
    {"digits", "--data FOLDER --epochs 1000000", "--data FOLDER/none", "--data FOLDER/nan --epochs 1000000"},
    {"accumulate", "--steps 1000000000", "--micro_batch_size 1000000000000000",
     "--steps 1000000000 --noise 1e300"},
    {"sync_batch_norm", "--steps 1000000000", "--batch_size 1000000000000000",
     "--steps 1000000000 --noise 1e300"},
    {"powersgd", "--steps 1000000000", "--batch_size 1000000000000000", "--steps 1000000000 --noise 1e300"},
    {"sharded_adamw", "--steps 1000000000", "--batch_size 1000000000000000",
     "--steps 1000000000 --noise 1e300"},
    {"mnist_horovod_steps", "--synthetic --epochs 1000000000", "--data FOLDER/none",
     "--synthetic --epochs 1000000000 --noise 1e300"},
    {"mnist_gradient_tape", "--synthetic --epochs 1000000000", "--data FOLDER/none",
     "--synthetic --epochs 1000000000 --noise 1e300"},
    {"cifar10_resnet18", "--synthetic --num_epochs 1000000000 --batch_size 4 --model_dir FOLDER/models",
     "--data FOLDER/none", "--synthetic --num_epochs 1000000000 --batch_size 4 --noise 1e300",
     "15s"},  // rank 0 evaluates alone
};

// Gets such gradients by a learning rate, which is the same on all ranks.
const Example transformer = {"char_transformer", "--synthetic --steps 1000000000", "--text FOLDER/none", ""};

// Looks at its loss before there are gradients.
const Example trainer = {"trainer", "--data FOLDER --epochs 1000000", "--data FOLDER/none", ""};

/// Digits whose images are no numbers.
void write_digits_without_numbers(const std::filesystem::path& folder) {
  std::filesystem::create_directory(folder);
  write_digits(folder, 10);
  std::ofstream file(folder / "train-images-idx3-ubyte", std::ios::binary);
  const auto put = [&](std::initializer_list<int> bytes) {
    for (const int byte : bytes) file.put(static_cast<char>(byte));
  };
  put({0, 0, 0x0d, 3, 0, 0, 0, 40, 0, 0, 0, 8, 0, 0, 0, 8});
  for (int i = 0; i < 40 * 64; ++i) put({0x7f, 0xc0, 0, 0});
}

class FaultTest : public ExampleTest {
 protected:
  void SetUp() override {
    ExampleTest::SetUp();
    write_digits(folder(), 10);
  }

  /// Sends `signal` to rank 1 of the job below `launcher` once it has come to its 20th collective: it trains
  /// then.
  void hurt_in_training(const Process& launcher, int signal) const {
    const Deadline deadline = Deadline::after(std::chrono::seconds(30));
    const std::string beginning = "  rank 1 (pid ";
    std::string said;
    while (!deadline.expired()) {
      said = start({program("lockstep"), "explain", "--pid", std::to_string(launcher.pid())}).finish().out;
      for (const auto& line : lines_with(said, beginning)) {
        const auto call = line.find('#');
        const bool is_gone = line.find("its process is gone") != std::string::npos;  // of before a restart
        if (is_gone || call == std::string::npos || std::atoi(line.c_str() + call + 1) < 20) continue;
        const pid_t pid = std::atoi(line.c_str() + beginning.size());
        ASSERT_GT(pid, 1) << line;
        ASSERT_EQ(::kill(pid, signal), 0) << line;
        return;
      }
      std::this_thread::sleep_for(
          std::chrono::milliseconds(20));  // a job does not say that it has come so far
    }
    FAIL() << "rank 1 never came to train:\n" << said;
  }
};

class Faults : public FaultTest, public ::testing::WithParamInterface<Example> {
 protected:
  std::string in_folder(std::string flags) const {
    for (auto at = flags.find("FOLDER"); at != std::string::npos; at = flags.find("FOLDER"))
      flags.replace(at, 6, folder().string());
    return flags;
  }
  Process start_training(const std::string& flags_of_1, Variables variables = {}) const {
    return launch_unlike(GetParam().name, in_folder(GetParam().flags), in_folder(flags_of_1),
                         std::move(variables));
  }
};

class GradientFaults : public Faults {};

const auto name_of = [](const auto& info) { return std::string(info.param.name); };
INSTANTIATE_TEST_SUITE_P(Of, Faults, ::testing::ValuesIn(examples), name_of);
INSTANTIATE_TEST_SUITE_P(OfTheLoop, Faults, ::testing::Values(trainer, transformer), name_of);
INSTANTIATE_TEST_SUITE_P(Of, GradientFaults, ::testing::ValuesIn(examples), name_of);

class RestartedTraining : public FaultTest {
 protected:
  /// digits with a checkpoint.
  Process train(const std::string& checkpoint, std::vector<std::string> options) const {
    options.insert(options.begin(), {program("lockstep"), "run", "-np", "2", "--no-prefix"});
    for (const std::string& word :
         {program("digits"), std::string("--data"), folder().string(), std::string("--epochs"),
          std::string("400"), std::string("--checkpoint"), (folder() / checkpoint).string()})
      options.push_back(word);
    return start(options);
  }
};

TEST_F(RestartedTraining, GoesOnFromItsCheckpointAndEndsAsAnUnharmedOneDoes) {
  Process job = train("harmed.ckpt", {"--max-restarts", "2"});
  job.await("epoch   2/400");
  hurt_in_training(job, SIGKILL);
  job.await_err("restart 1 of 2");
  hurt_in_training(job, SIGKILL);
  job.await_err("restart 2 of 2");
  const Ending harmed = job.finish();
  EXPECT_EQ(harmed.exit_code, 0) << harmed.err;
  EXPECT_EQ(lines_with(harmed.out, "epoch   1/400").size(), 1U) << "it began anew";
  const Ending unharmed = train("unharmed.ckpt", {}).finish();
  EXPECT_EQ(unharmed.exit_code, 0) << unharmed.err;
  const std::string expected = parameters_in(folder() / "unharmed.ckpt");
  EXPECT_GT(expected.size(), 100'000U);
  EXPECT_TRUE(parameters_in(folder() / "harmed.ckpt") == expected) << "some bytes differ";
}

TEST_P(Faults, NameARankThatIsKilled) {
  Process job = start_training(GetParam().flags);
  hurt_in_training(job, SIGKILL);
  const Ending ending = job.finish();
  EXPECT_EQ(ending.exit_code, 128 + SIGKILL) << ending.err;
  EXPECT_THAT(ending.err, ContainsRegex("lockstep run: rank 1 \\(pid [0-9]+\\) was killed by signal 9 "));
}

TEST_P(Faults, NameARankThatStops) {
  Process job = start_training(GetParam().flags, {{"LOCKSTEP_TIMEOUT", GetParam().timeout}});
  hurt_in_training(job, SIGSTOP);
  const Ending ending = job.finish();
  EXPECT_EQ(ending.exit_code, 1) << ending.err;
  EXPECT_THAT(lines_with(ending.err, std::string("[0] ") + GetParam().name + ": "),
              ElementsAre(ContainsRegex("rank 1 .*did not")))
      << ending.err;
}

TEST_P(Faults, NameARankThatThrows) {
  const Ending ending = start_training(GetParam().too_much).finish();
  EXPECT_EQ(ending.exit_code, 1) << ending.err;
  EXPECT_THAT(lines_with(ending.err, std::string("[1] ") + GetParam().name + ": "), SizeIs(1)) << ending.err;
  EXPECT_THAT(ending.err, ContainsRegex("lockstep run: rank 1 \\(pid [0-9]+\\) ended with exit code 1\n"));
}

TEST_P(GradientFaults, NameTheRankWhoseTheyAre) {
  write_digits_without_numbers(folder() / "nan");
  const Ending ending = start_training(GetParam().not_a_number).finish();
  EXPECT_EQ(ending.exit_code, 1) << ending.err;
  for (const char* rank : {"[0] ", "[1] "}) {
    EXPECT_THAT(lines_with(ending.err, rank),
                Contains(ContainsRegex("the gradient of parameter .* on rank 1 is not finite")))
        << ending.err;
  }
}

class FaultsOfOne : public FaultTest {};

TEST_F(FaultsOfOne, DigitsThatAreKilledLeaveTheirLastCheckpointWhole) {
  const std::string file = folder() / "digits.ckpt";
  const std::vector<std::string> words = {program("digits"), "--data", folder(), "--checkpoint", file};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), words.begin(), words.end());
    return more;
  };
  ASSERT_EQ(launch(with({"--epochs", "1"})).finish().exit_code, 0);
  Process job = launch(with({"--epochs", "1000000", "--resume"}));
  hurt_in_training(job, SIGKILL);
  EXPECT_EQ(job.finish().exit_code, 128 + SIGKILL);
  const Ending after = launch(with({"--epochs", "1", "--resume"})).finish();  // nothing is left to train
  EXPECT_EQ(after.exit_code, 0) << after.err;
  EXPECT_THAT(after.out, HasSubstr("summary processes=2"));
}

TEST_F(FaultsOfOne, TrainerNamesARankWhoseLossIsNoNumber) {
  write_digits_without_numbers(folder() / "nan");
  const auto with = [&](const std::string& data) { return "--data " + data + " --epochs 1000000"; };
  const Ending ending = launch_unlike("trainer", with(folder()), with(folder() / "nan")).finish();
  EXPECT_EQ(ending.exit_code, 1) << ending.err;
  EXPECT_THAT(lines_with(ending.err, "[1] trainer: "),
              ElementsAre(HasSubstr("rank 1, epoch 1, step 1: the loss is nan, at a learning rate of ")));
  EXPECT_THAT(ending.err, ContainsRegex("lockstep run: rank 1 \\(pid [0-9]+\\) ended with exit code 1\n"));
}

TEST_F(FaultsOfOne, ResnetThatIsKilledLeavesItsLastModelWhole) {
  const auto with = [&](std::vector<std::string> more) {
    const std::vector<std::string> words = {
        program("cifar10_resnet18"), "--synthetic", "--samples", "40", "--batch_size", "4", "--model_dir",
        folder() / "models"};
    more.insert(more.begin(), words.begin(), words.end());
    return more;
  };
  Process job = launch(with({"--num_epochs", "1000000"}));
  hurt_in_training(job, SIGKILL);
  EXPECT_EQ(job.finish().exit_code, 128 + SIGKILL);
  const Ending after = launch(with({"--num_epochs", "0", "--resume"})).finish();  // nothing is left to train
  EXPECT_EQ(after.exit_code, 0) << after.err;
  EXPECT_THAT(after.out, HasSubstr("epoch 0  accuracy "));
}

TEST_F(FaultsOfOne, ToyModelNamesARankWhoseGradientsAreNoNumbers) {
  const Ending ending = start({program("toy_model"), "--learning_rate", "1e30", "--steps", "5"}).finish();
  EXPECT_EQ(ending.exit_code, 1);
  EXPECT_THAT(ending.err,
              ContainsRegex("the gradient of parameter net.\\.(weight|bias) on rank . is not finite"));
}

TEST_F(FaultsOfOne, TransformerNamesARankWhoseGradientsAreNoNumbers) {
  const Ending ending =
      launch({program("char_transformer"), "--synthetic", "--learning_rate", "1e30"}).finish();
  EXPECT_EQ(ending.exit_code, 1);
  EXPECT_THAT(ending.err, ContainsRegex("the gradient of parameter .* on rank . is not finite"));
}

TEST_F(FaultsOfOne, DigitsNameARankWithAnotherLearningRate) {
  const std::string flags = "--data " + folder().string() + " --epochs 1000000 --learning_rate ";
  const Ending ending = launch_unlike("digits", flags + "0.02", flags + "0.03").finish();
  EXPECT_EQ(ending.exit_code, 1) << ending.err;
  for (const char* rank : {"[0] digits: ", "[1] digits: "}) {
    EXPECT_THAT(
        lines_with(ending.err, rank),
        ElementsAre(ContainsRegex("parameter .* has drifted apart: after [0-9]+ averaged backwards its "
                                  "element [0-9]+ is .* on rank 0 and .* on rank 1")))
        << ending.err;
  }
}

TEST_F(FaultsOfOne, ToyModelNamesARankThatIsKilled) {
  Process job = start({program("toy_model"), "--steps", "1000000000"});
  hurt_in_training(job, SIGKILL);
  const Ending ending = job.finish();
  EXPECT_EQ(ending.exit_code, 1);
  EXPECT_THAT(ending.err,
              ContainsRegex("\ntoy_model: spawn: rank 1 \\(pid [0-9]+\\) was killed by signal 9 "));
}

}  // namespace
}  // namespace lockstep::testing
