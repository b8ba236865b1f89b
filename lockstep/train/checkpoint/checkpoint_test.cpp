#include "lockstep/train/checkpoint/checkpoint.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/resource.h>

#include <csignal>
#include <fstream>
#include <functional>
#include <span>

#include "lockstep/base/failure_test.h"
#include "lockstep/base/file.h"
#include "lockstep/base/unique_fd.h"
#include "lockstep/train/checkpoint/checkpoint_file.h"
#include "lockstep/train/checkpoint/saved_model_test.h"
#include "lockstep/train/checkpoint/state_dict.h"
#include "lockstep/train/data_parallel/data_parallel.h"
#include "lockstep/train/replicas/model_tensors.h"
#include "lockstep/train/replicas/named_tensor.h"
#include "lockstep/train/replicas/parameter_claim.h"
#include "lockstep/train/tensor/tensor_bytes.h"

namespace lockstep {
namespace {

using test::copy_of;
using test::refusal;
using test::same;
using test::text_in;
using test::train;
using testing::HasSubstr;
using torch::nn::Linear;
namespace fs = std::filesystem;

struct NetImpl : torch::nn::Module {
  explicit NetImpl(std::int64_t width = 6) : first(4, width), second(width, 3) {
    register_module("first", first);
    register_module("norm", norm);
    register_module("second", second);
  }
  torch::Tensor forward(const torch::Tensor& x) { return second(torch::tanh(first(norm(x)))); }
  torch::nn::BatchNorm1d norm{4};
  Linear first, second;
};
TORCH_MODULE(Net);

class CheckpointTest : public test::CheckpointFolderTest {
 protected:
  std::string refusal_to_load(Net& net, torch::optim::Optimizer* optimizer = nullptr) const {
    return refusal([&] { (void)load_checkpoint(path_, Group(), *net, optimizer); });
  }
};

TEST_F(CheckpointTest, BringsBackModelEpochAndMetadata) {
  const Group alone;
  Net net, other;
  train(net, *std::make_unique<torch::optim::SGD>(net->parameters(), 0.1), alone, 0, 3);
  save_checkpoint(path_, alone, net, {.epoch = 5, .metadata = {{"loss", "0.25"}}});
  const auto info = load_checkpoint(path_, alone, other);
  EXPECT_EQ(info.epoch, 5U);
  EXPECT_EQ(info.metadata.at("loss"), "0.25");
  EXPECT_FALSE(info.training);
  EXPECT_TRUE(same(copy_of(*net), copy_of(*other)));
  EXPECT_THAT(files(), testing::ElementsAre("model.ckpt"));
}

TEST_F(CheckpointTest, BringsBackWhereTheTrainingWas) {
  const auto random_of = [](int rank) { return torch::full({5}, rank + 1, torch::kUInt8); };
  const SamplerPosition position = {.samples = 40, .seed = 3, .epoch = 5, .consumed = 16};
  test::on_ranks(2, [&](const Group& group) {
    Net net;
    const TrainingState training{
        .step = 13, .schedule_step = 6, .sampler = position, .random = random_of(group.rank())};
    save_checkpoint(path_, group, net, {.epoch = 5, .metadata = {{"loss", "0.25"}}, .training = training});
  });
  for (const int ranks : {1, 2, 4}) {
    test::on_ranks(ranks, [&](const Group& group) {
      Net net;
      const auto info = load_checkpoint(path_, group, net);
      EXPECT_EQ(info.epoch, 5U);
      EXPECT_EQ(info.metadata, (std::map<std::string, std::string>{{"loss", "0.25"}}));
      ASSERT_TRUE(info.training);
      EXPECT_EQ(info.training->step, 13U);
      EXPECT_EQ(info.training->schedule_step, 6U);
      EXPECT_EQ(info.training->sampler, position);
      if (group.rank() < 2) {
        EXPECT_TRUE(test::same_bits(info.training->random, random_of(group.rank())));
      } else {
        EXPECT_GT(info.training->random.numel(), 1000) << "a state of libtorch's generator";
      }
    });
  }
}

TEST_F(CheckpointTest, IsReadByThoseWhoKnowOfNoTrainingState) {
  save_checkpoint(path_, Group(), Net(), {.training = TrainingState{.step = 3}});
  const CheckpointFile file(path_, "checkpoint");
  EXPECT_EQ(file.header().metadata,
            (std::map<std::string, std::string>{{"lockstep.step", "3"}, {"lockstep.schedule_step", "0"}}));
  EXPECT_EQ(file.header().entries.size(), tensors_of(*Net()).size());
}

TEST_F(CheckpointTest, RefusesATrainingStateThatMakesNoSense) {
  Net net, other;
  const auto before = copy_of(*other);
  CheckpointImage image({.metadata = {{"lockstep.step", "many"}}});
  std::vector<torch::Tensor> tensors = copy_of(*net);
  std::size_t next = 0;
  for (const auto& item : tensors_of(*net)) {
    const auto& tensor = tensors[next++];
    image.add({.kind = item.is_parameter ? EntryKind::parameter : EntryKind::buffer,
               .type = checkpoint_type(tensor.scalar_type()).value(),
               .name = item.name,
               .shape = {tensor.sizes().begin(), tensor.sizes().end()}},
              elements_of(tensor));
  }
  std::ofstream out(path_, std::ios::binary);
  image.write([&](std::span<const std::byte> bytes) {
    out.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  });
  out.close();
  EXPECT_THAT(refusal_to_load(other), HasSubstr("corrupt_data: checkpoint " + path_.string() +
                                                ": at byte 80 expected a number in lockstep.step"));
  EXPECT_TRUE(same(before, copy_of(*other)));
}

TEST_F(CheckpointTest, DoesNotHoldParametersThatSomebodyHasLeftHalfChanged) {
  Net net;
  const auto tensors = tensors_of(*net);
  const std::span<const NamedTensor> first(tensors.data(), 1);
  const ParameterClaim claim(first, "optimizer", [] { throw Error(ErrorCode::aborted, "half a step"); });
  const auto refusal = [](const std::function<void()>& save) {
    return test::failure_of(save, ErrorCode::aborted);
  };
  EXPECT_EQ(refusal([&] { save_checkpoint(path_, Group(), *net); }), "half a step");
  EXPECT_EQ(refusal([&] { save_state_dict(path_, Group(), *net); }), "half a step");
  EXPECT_TRUE(files().empty());
}

TEST_F(CheckpointTest, KeepsItsOwnKeysToItself) {
  const auto endings = test::run_ranks(2, [&](const Group& group) {
    save_checkpoint(path_, group, Net(), {.metadata = {{"lockstep.sampler", ""}}});
  });
  for (const auto& ending : endings) {
    EXPECT_EQ(ending.code, ErrorCode::invalid_argument);
    EXPECT_THAT(ending.text, HasSubstr("the key \"lockstep.sampler\" of the checkpoint's metadata is for"));
  }
  EXPECT_THAT(files(), testing::IsEmpty());
}

TEST_F(CheckpointTest, LetsTrainingGoOnAsIfItHadNeverStopped) {
  for (const bool adam : {false, true}) {
    const auto make = [&](Net& net) -> std::unique_ptr<torch::optim::Optimizer> {
      if (adam) return std::make_unique<torch::optim::Adam>(net->parameters(), 0.01);
      return std::make_unique<torch::optim::SGD>(net->parameters(),
                                                 torch::optim::SGDOptions(0.01).momentum(0.9));
    };
    std::vector<torch::Tensor> whole, resumed;
    test::on_ranks(2, [&](const Group& group) {
      Net net;
      const auto optimizer = make(net);
      DistributedDataParallel ddp(net, group);
      train(ddp, *optimizer, group, 0, 2);
      save_checkpoint(path_, group, ddp, *optimizer, {.epoch = 2});
      train(ddp, *optimizer, group, 2, 4);
      if (group.rank() == 0) whole = copy_of(*net);  // buffers of the others are their own
    });
    test::on_ranks(2, [&](const Group& group) {
      Net net;
      const auto optimizer = make(net);
      DistributedDataParallel ddp(net, group);
      train(ddp, *optimizer, group, 7, 8);  // what was there before goes
      EXPECT_EQ(load_checkpoint(path_, group, ddp, *optimizer).epoch, 2U);
      train(ddp, *optimizer, group, 2, 4);
      if (group.rank() == 0) resumed = copy_of(*net);
    });
    EXPECT_TRUE(same(whole, resumed)) << (adam ? "Adam" : "SGD");
  }
}

TEST_F(CheckpointTest, ForgetsStateThatTheSavedOptimizerDidNotHave) {
  Net net;
  torch::optim::Adam adam(net->parameters(), 0.01);
  save_checkpoint(path_, Group(), net, adam);  // before its first step
  train(net, adam, Group(), 0, 1);
  load_checkpoint(path_, Group(), net, adam);
  EXPECT_TRUE(adam.state().empty());
}

TEST_F(CheckpointTest, GivesEverybodyWhatRank0Reads) {
  test::on_ranks(3, [&](const Group& group) {
    Net net;
    torch::optim::Adam adam(net->parameters(), 0.01 * (group.rank() + 1));
    const auto path = group.rank() == 0 ? path_ : fs::path("/nobody/else/needs/it");
    save_checkpoint(path, group, net, adam, {.epoch = 4, .metadata = {{"a", "b"}}});
    const auto before = copy_of(*net);
    Net other;
    torch::optim::Adam other_adam(other->parameters(), 1);
    const auto info = load_checkpoint(path, group, other, other_adam);
    EXPECT_EQ(info.epoch, 4U);
    EXPECT_EQ(info.metadata.at("a"), "b");
    EXPECT_DOUBLE_EQ(other_adam.param_groups()[0].options().get_lr(), 0.01);
    EXPECT_TRUE(group.rank() != 0 || same(before, copy_of(*other)));
  });
}

TEST_F(CheckpointTest, KeepsTensorsThatAreNotContiguousAndOfAnyType) {
  struct Odd : torch::nn::Module {
    explicit Odd(double value) {
      register_parameter("t", torch::full({3, 2}, value).t());
      register_buffer("flags", torch::full({3}, value > 0, torch::kBool));
      register_buffer("half", torch::full({5}, value, torch::kBFloat16));
      register_buffer("none", torch::empty({0, 2}));
      register_buffer("wave", torch::full({2}, value, torch::kComplexFloat));
    }
  };
  const Odd saved(1);
  Odd loaded(0);
  save_checkpoint(path_, Group(), saved);
  load_checkpoint(path_, Group(), loaded);
  EXPECT_TRUE(same(copy_of(saved), copy_of(loaded)));
}

TEST_F(CheckpointTest, IsRefusedWithAnyByteChangedAndChangesNothing) {
  Net net(1), other(1);
  torch::optim::SGD sgd(net->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  train(net, sgd, Group(), 0, 1);
  const TrainingState training{
      .step = 1, .sampler = SamplerPosition{.samples = 8}, .random = torch::ones({5}, torch::kUInt8)};
  save_checkpoint(path_, Group(), net, sgd, {.metadata = {{"loss", "0.25"}}, .training = training});
  const std::string whole = text_in(path_);
  const auto before = copy_of(*other);
  std::fstream file(path_, std::ios::in | std::ios::out | std::ios::binary);
  const auto put = [&](std::size_t at, int byte) {
    file.seekp(static_cast<std::streamoff>(at)).put(static_cast<char>(byte)).flush();
  };
  for (std::size_t i = 0; i < whole.size(); ++i) {
    put(i, whole[i] ^ 0x10);
    EXPECT_NE(refusal_to_load(other), "accepted") << "byte " << i;
    put(i, whole[i]);
  }
  EXPECT_TRUE(same(before, copy_of(*other)));
  EXPECT_EQ(refusal_to_load(other), "accepted");
}

TEST_F(CheckpointTest, IsRefusedCutAnywhereAndChangesNothing) {
  Net net(1), other(1);
  save_checkpoint(path_, Group(), net);
  const auto whole = fs::file_size(path_);
  const auto before = copy_of(*other);
  fs::resize_file(path_, whole + 1);
  EXPECT_THAT(refusal_to_load(other), HasSubstr("corrupt_data"));
  for (auto length = whole; length-- > 0;) {
    fs::resize_file(path_, length);
    EXPECT_THAT(refusal_to_load(other),
                HasSubstr("corrupt_data: checkpoint " + path_.string() + ": at byte "))
        << length;
  }
  EXPECT_TRUE(same(before, copy_of(*other)));
}

TEST_F(CheckpointTest, NamesTheFirstDifferenceToAnotherModel) {
  Net narrow(5), wide(6);
  const auto before = copy_of(*wide);
  save_checkpoint(path_, Group(), narrow);
  EXPECT_THAT(refusal_to_load(wide),
              testing::AllOf(HasSubstr("invalid_argument: checkpoint " + path_.string() +
                                       " is of another model: its parameter first.weight (at byte "),
                             HasSubstr(") is f32 [5, 4], here f32 [6, 4]")));
  EXPECT_TRUE(same(before, copy_of(*wide)));
  Linear linear(4, 5);
  save_checkpoint(path_, Group(), linear);
  EXPECT_THAT(refusal_to_load(wide), HasSubstr("it has no parameter first.weight, here f32 [6, 4]"));
  torch::nn::Sequential more(Linear(4, 5), Linear(5, 5)), less{Linear(4, 5)};
  save_checkpoint(path_, Group(), more);
  try {
    load_checkpoint(path_, Group(), less);
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("it has parameter 1.bias, f32 [5], here is none"));
  }
}

TEST_F(CheckpointTest, NamesAnotherOptimizer) {
  Net net;
  torch::optim::Adam adam(net->parameters());
  torch::optim::SGD sgd(net->parameters(), 0.1), fewer({net->parameters()[0]}, 0.1);
  save_checkpoint(path_, Group(), net, adam);
  EXPECT_THAT(refusal_to_load(net, &sgd), HasSubstr("holds the state of an optimizer Adam, here it is SGD"));
  save_checkpoint(path_, Group(), net, sgd);
  EXPECT_THAT(refusal_to_load(net, &fewer), HasSubstr("an optimizer of 6 parameters, here it has 1"));
  save_checkpoint(path_, Group(), net);
  EXPECT_THAT(refusal_to_load(net, &sgd), HasSubstr("saved without an optimizer"));
}

TEST_F(CheckpointTest, FailsOnAllRanksAlike) {
  const auto refused = [&](const fs::path& path) {
    const auto endings = test::run_ranks(3, [&](const Group& group) {
      Net net;
      load_checkpoint(path, group, net);
    });
    for (const auto& ending : endings) EXPECT_EQ(ending.text, endings[0].text);
    return endings[2].text;
  };
  EXPECT_THAT(refused(path_), HasSubstr("cannot open the checkpoint " + path_.string() +
                                        " (check its path and permissions): No such file"));
  EXPECT_THAT(refused(folder_), HasSubstr("expected the checkpoint, found a directory"));
  const auto endings = test::run_ranks(3, [&](const Group& group) {
    Net net;
    save_checkpoint(folder_ / "absent" / "model.ckpt", group, net);
  });
  for (const auto& ending : endings) {
    EXPECT_EQ(ending.code, ErrorCode::system);
    EXPECT_THAT(ending.text,
                HasSubstr("there is no folder " + (folder_ / "absent").string() + "; make it first"));
  }
  const auto different = test::run_ranks(2, [&](const Group& group) {
    Net net(group.rank() + 3);
    load_checkpoint(path_, group, net);
  });
  EXPECT_EQ(different[0].code, ErrorCode::mismatch);
}

TEST_F(CheckpointTest, StaysAsItWasWhereThereIsNoRoomForANewOne) {
  Net net(4), large(4000);
  save_checkpoint(path_, Group(), net);
  const std::string before = text_in(path_);
  const auto previous = std::signal(SIGXFSZ, SIG_IGN);
  rlimit limit{}, small{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &limit), 0);
  small = {.rlim_cur = 20'000, .rlim_max = limit.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  std::string text;
  try {
    save_checkpoint(path_, Group(), large);
  } catch (const Error& error) {
    text = error.what();
  }
  ::setrlimit(RLIMIT_FSIZE, &limit);
  std::signal(SIGXFSZ, previous);
  EXPECT_THAT(text, HasSubstr("cannot write the checkpoint " + path_.string()));
  EXPECT_THAT(text, HasSubstr("File too large"));
  EXPECT_EQ(text_in(path_), before);
  EXPECT_THAT(files(), testing::ElementsAre("model.ckpt"));
}

TEST_F(CheckpointTest, RemovesWhatKilledWritersOfThisCheckpointLeft) {
  const auto leave = [&](const std::string& name) { std::ofstream(folder_ / name) << "half"; };
  Net net;
  const auto left = [&] {
    leave("model.ckpt.tmp-123-00ab12cd");
    leave("model.ckpt.tmp-notes");
    leave("other.ckpt.tmp-123-00ab12cd");
    leave("model.ckpt.tmp-77-aa");
  };
  const auto expect_gone = [&](const std::vector<std::string>& expected) { EXPECT_EQ(files(), expected); };
  const UniqueFd lives(::open((folder_ / "model.ckpt.tmp-77-aa").c_str(), O_CREAT | O_RDWR, 0600));
  ASSERT_EQ(::flock(lives.get(), LOCK_EX), 0);
  left();
  save_checkpoint(path_, Group(), net);
  const std::vector<std::string> rest = {"model.ckpt", "model.ckpt.tmp-77-aa", "model.ckpt.tmp-notes",
                                         "other.ckpt.tmp-123-00ab12cd"};
  expect_gone(rest);
  left();
  load_checkpoint(path_, Group(), net);
  expect_gone(rest);
  left();
  remove_checkpoint_leftovers(path_, Group());
  expect_gone(rest);
}

TEST_F(CheckpointTest, ReplacesTheFileAndNeverWritesIntoIt) {
  Net net;
  save_checkpoint(path_, Group(), net);
  const std::ifstream old(path_);
  const auto inode = [&] {
    struct stat status {};
    ::stat(path_.c_str(), &status);
    return status.st_ino;
  };
  const auto before = inode();
  save_checkpoint(path_, Group(), net);
  EXPECT_NE(inode(), before);
}

}  // namespace
}  // namespace lockstep
