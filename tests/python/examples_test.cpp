// Python's examples: that they train, that Horovod's own names and launchers do as well, and that C++ goes on with their models.
#include <filesystem>
#include <fstream>

#include "tests/python/python_job.h"

namespace lockstep::testing {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::SizeIs;
using ::testing::StartsWith;

double last_number(const std::string& line) { return std::stod(line.substr(line.rfind(' ') + 1)); }

class PythonExample : public PythonJob {
 protected:
  static std::string example(const std::string& name) { return source("examples/python/" + name); }
  /// What rank 0 says on stdout, in lines that begin so.
  std::vector<std::string> lines_of(const Ending& ending, const std::string& beginning) const {
    EXPECT_EQ(ending.exit_code, 0) << ending.err;
    return lines_with(ending.out, beginning);
  }
  std::vector<std::string> lines_of(std::vector<std::string> words, const std::string& beginning) const {
    words[0] = example(words[0]);
    return lines_of(job(2, words).finish(), beginning);
  }
};

class TorchExample : public PythonExample {
 protected:
  void SetUp() override {
    PythonExample::SetUp();
    use_peer("torch");
  }
  static std::vector<std::string> mnist(const std::string& program) {
    return {program, "--synthetic", "--samples", "2000", "--epochs", "4", "--lr", "0.05"};
  }
  static void expect_trained(const std::vector<std::string>& lines) {
    ASSERT_THAT(lines, SizeIs(4));
    EXPECT_THAT(lines[0], StartsWith("epoch 1/4: test loss "));
    EXPECT_GT(last_number(lines[3]), 0.9) << lines[3];
  }
};

TEST_F(TorchExample, MnistTrains) {
  auto words = mnist("torch_mnist.py");
  words.insert(words.end(), {"--model", folder() / "mnist.pth"});
  expect_trained(lines_of(words, "epoch "));
  EXPECT_GT(std::filesystem::file_size(folder() / "mnist.pth"), 80'000U);
  const auto halves = lines_of({"torch_mnist.py", "--synthetic", "--samples", "400", "--epochs", "1",
                                "--fp16-allreduce", "--use-adasum"},
                               "epoch ");
  EXPECT_THAT(halves, SizeIs(1));
}

// The program as Horovod's users have it, its import line too, by their launcher and by mpirun.
TEST_F(TorchExample, MnistTrainsUnderHorovodsNamesAndLaunchers) {
  std::string text = text_in(example("torch_mnist.py"));
  const std::string ours = "import lockstep.torch as hvd  # ";
  text.replace(text.find(ours), ours.size(), "");
  std::ofstream(folder() / "train.py") << text;
  const std::string paths =
      source("python") + ":" + source("python/horovod_names") + ":" + source("examples/python");
  const std::string binaries = std::string(std::getenv("LOCKSTEP_BINARY_DIR")) + "/bin";
  const Variables under_its_names = variables(
      {{"PYTHONPATH", paths}, {"PATH", binaries + ":" + std::getenv("PATH")}, {"OMP_NUM_THREADS", "1"}});
  std::vector<std::vector<std::string>> launchers = {
      {python(), "-c", "from horovod.horovodrun import main; main()", "-np", "2"}};
  if (const auto mpirun = peer_program("openmpi", "mpirun"))
    launchers.push_back({*mpirun, "--allow-run-as-root", "--oversubscribe", "-n", "2"});
  for (auto words : launchers) {
    for (const std::string& word : mnist(folder() / "train.py")) words.push_back(word);
    words.insert(words.end() - 8, python());
    const Ending ending = start(words, under_its_names).finish();
    EXPECT_EQ(ending.exit_code, 0) << ending.err;
    EXPECT_THAT(ending.out, ContainsRegex("epoch 4/4: test loss 0.[0-9]+, accuracy (1.0000|0.9)"))
        << ending.err;
  }
}

TEST_F(TorchExample, DataThatIsMissingIsNamedWithTheRemedy) {
  const Ending ending = job(2, {example("torch_mnist.py"), "--data-dir", folder() / "none"}).finish();
  EXPECT_EQ(ending.exit_code, 1);
  EXPECT_THAT(ending.err,
              HasSubstr((folder() / "none/train-images-idx3-ubyte").string() +
                        ": No such file or directory; `lockstep fetch` gets MNIST and CIFAR-10, or "
                        "train with --synthetic"));
}

/// CIFAR-10's binary version with few records: each image is its label all over, in noise.
void write_cifar10(const std::filesystem::path& folder) {
  std::filesystem::create_directory(folder);
  std::uint32_t dice = 1;
  for (const char* const name : {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin",
                                 "data_batch_4.bin", "data_batch_5.bin", "test_batch.bin"}) {
    std::ofstream file(folder / name, std::ios::binary);
    for (int record = 0; record < 20; ++record) {
      file.put(static_cast<char>(record % 10));
      for (int byte = 0; byte < 3072; ++byte) {
        dice = dice * 1664525 + 1013904223;
        file.put(static_cast<char>(20 * (record % 10) + (dice >> 24) % 64));
      }
    }
  }
}

TEST_F(TorchExample, Cifar10sModelIsReadInCppAndBack) {
  const std::string cpp = program("cifar10_resnet18");
  if (!std::filesystem::exists(cpp)) GTEST_SKIP() << "built without LOCKSTEP_TRAIN";
  write_cifar10(folder() / "cifar");
  const std::vector<std::string> flags = {"--num_epochs", "1",           "--batch_size",
                                          "25",           "--model_dir", folder() / "models"};
  const auto with_flags = [&](std::vector<std::string> words, const std::vector<std::string>& more) {
    words.insert(words.end(), flags.begin(), flags.end());
    words.insert(words.end(), more.begin(), more.end());
    return words;
  };
  const auto accuracy_in = [](const std::string& line) { return line.substr(line.find("accuracy ") + 9, 6); };
  const std::vector<std::string> python_reads = {"--data-dir", folder() / "cifar"};
  const auto first = lines_of(with_flags({"cifar10_ddp.py"}, python_reads), "epoch ");
  ASSERT_THAT(first, SizeIs(2));
  EXPECT_THAT(first[1], AllOf(StartsWith("epoch 1: accuracy "), EndsWith("models/resnet_distributed.pth")));

  const auto second = lines_of(start(with_flags({program("lockstep"), "run", "--no-prefix", "-np", "2", cpp},
                                                {"--data", folder() / "cifar", "--resume"}))
                                   .finish(),
                               "epoch ");
  ASSERT_THAT(second, SizeIs(2));
  EXPECT_EQ(accuracy_in(second[0]), accuracy_in(first[1]));

  auto resumed = python_reads;
  resumed.push_back("--resume");
  const auto third = lines_of(with_flags({"cifar10_ddp.py"}, resumed), "epoch ");
  ASSERT_THAT(third, SizeIs(2));
  EXPECT_EQ(accuracy_in(third[0]), accuracy_in(second[1]));
}

TEST_F(TorchExample, AToySpawnsItsRanks) {
  const Ending ending = start({python(), example("spawn_toy.py"), "--ranks", "3"}, variables()).finish();
  EXPECT_EQ(ending.exit_code, 0) << ending.err;
  for (const std::string rank : {"0", "1", "2"})
    EXPECT_THAT(ending.out,
                ContainsRegex("rank " + rank + " of 3: its own loss is [0-9.]+, and the replicas are equal"));
}

TEST_F(TorchExample, TheTourOfCollectivesShowsEach) {
  const Ending ending = job(3, {example("collectives_tour.py")}).finish();
  EXPECT_EQ(ending.exit_code, 0) << ending.err;
  EXPECT_EQ(
      ending.out,
      "send_and_receive: rank 0 has [42.0]; rank 1 has [42.0]; rank 2 has [0.0]\n"
      "in_a_ring: rank 0 has [2.0]; rank 1 has [0.0]; rank 2 has [1.0]\n"
      "broadcast: rank 0 has [1.0]; rank 1 has [1.0]; rank 2 has [1.0]\n"
      "reduce: rank 0 has [3.0]; rank 1 has None; rank 2 has None\n"
      "all_reduce: rank 0 has [3.0]; rank 1 has [3.0]; rank 2 has [3.0]\n"
      "scatter: rank 0 has [0.0]; rank 1 has [10.0]; rank 2 has [20.0]\n"
      "gather: rank 0 has [0.0, 1.0, 2.0]; rank 1 has None; rank 2 has None\n"
      "all_gather: rank 0 has [0.0, 1.0, 2.0]; rank 1 has [0.0, 1.0, 2.0]; rank 2 has [0.0, 1.0, 2.0]\n"
      "reduce_scatter: rank 0 has [0.0]; rank 1 has [3.0]; rank 2 has [6.0]\n"
      "all_to_all: rank 0 has [0.0, 10.0, 20.0]; rank 1 has [1.0, 11.0, 21.0]; rank 2 has [2.0, 12.0, 22.0]\n"
      "in_a_group: rank 0 has [2.0]; rank 1 has [1.0]; rank 2 has [2.0]\n"
      "objects: rank 0 has [0, 1, 2]; rank 1 has [0, 1, 2]; rank 2 has [0, 1, 2]\n");
}

class TensorFlowExample : public PythonExample, public ::testing::WithParamInterface<const char*> {
 protected:
  void SetUp() override {
    PythonExample::SetUp();
    use_peer(GetParam());
  }
  /// The last line's loss of those that begin so, by a number of steps of a batch of 100.
  void expect_trained(std::vector<std::string> words, const std::string& last_line) const {
    words.insert(words.end(), {"--synthetic", "--samples", "2000"});
    const auto lines = lines_of(words, last_line);
    ASSERT_THAT(lines, SizeIs(1));
    const std::string loss = "loss ";
    EXPECT_LT(std::stod(lines[0].substr(lines[0].find(loss) + loss.size())), 1.0) << lines[0];
  }
};

TEST_P(TensorFlowExample, SessionsTrain) {
  expect_trained(
      {"tf1_mnist_sessions.py", "--steps", "160", "--lr", "0.05", "--checkpoints", folder() / "saved"},
      "step 80: ");
  EXPECT_TRUE(std::filesystem::exists(folder() / "saved/checkpoint"));
}

TEST_P(TensorFlowExample, ATapeTrains) {
  expect_trained({"tf2_mnist_tape.py", "--steps", "80", "--checkpoints", folder() / "saved"}, "step 40: ");
  EXPECT_TRUE(std::filesystem::exists(folder() / "saved/checkpoint"));
}

TEST_P(TensorFlowExample, KerasTrains) {
  expect_trained({"keras_mnist.py", "--epochs", "8", "--model", folder() / "model.keras"}, "4 epochs: test ");
  EXPECT_GT(std::filesystem::file_size(folder() / "model.keras"), 100'000U);
}

INSTANTIATE_TEST_SUITE_P(Of, TensorFlowExample, ::testing::Values("tensorflow", "tensorflow2.15"),
                         [](const auto& info) {
                           return std::string(info.param) == "tensorflow" ? "Newest" : "Oldest";
                         });

}  // namespace
}  // namespace lockstep::testing
