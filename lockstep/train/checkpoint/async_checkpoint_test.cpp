// Checkpoints that are written while training goes on: they hold what was there when save() returned, and all
// ranks learn of a failure together.
#include "lockstep/train/checkpoint/async_checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <functional>

#include "lockstep/group/collectives.h"
#include "lockstep/train/checkpoint/saved_model_test.h"
#include "lockstep/train/data_parallel/data_parallel.h"
#include "lockstep/train/optimizer/fused_optimizer.h"
#include "lockstep/train/replicas/model_tensors.h"
#include "lockstep/train/sharded/sharded_optimizer.h"

namespace lockstep {
namespace {

using test::copy_of;
using test::refusal;
using test::same;
using test::sharded;
using test::text_in;
using test::train;
using testing::Each;
using testing::ElementsAre;
using testing::Field;
using testing::HasSubstr;
using torch::optim::Optimizer;
using torch::optim::SGDOptions;
namespace fs = std::filesystem;

using ShardedSGD = ShardedOptimizer<torch::optim::SGD>;

struct WideNetImpl : torch::nn::Module {
  WideNetImpl() {
    register_module("first", first);
    register_module("second", second);
  }
  torch::Tensor forward(const torch::Tensor& x) { return second(torch::tanh(first(x))); }
  torch::nn::Linear first{4, 100}, second{100, 3};
};
TORCH_MODULE(WideNet);

class AsyncCheckpointTest : public test::CheckpointFolderTest {
 protected:
  std::uint64_t saved_epoch() const {
    WideNet net;
    return load_checkpoint(path_, Group(), net).epoch;
  }
};

TEST_F(AsyncCheckpointTest, HoldsWhatWasThereWhenSaveReturned) {
  WideNet net, other;
  torch::optim::Adam adam(net->parameters(), 0.01), other_adam(other->parameters(), 1);
  train(net, adam, Group(), 0, 2);
  const auto before = copy_of(*net);
  AsyncCheckpoint checkpoint{Group()};
  CheckpointInfo info{.epoch = 2, .metadata = {{"loss", "0.25"}}, .training = TrainingState{.step = 2}};
  checkpoint.save(path_, net, adam, info);
  info = {};
  adam.param_groups()[0].options().set_lr(5);
  train(net, adam, Group(), 2, 5);
  checkpoint.wait();
  const auto loaded = load_checkpoint(path_, Group(), other, other_adam);
  EXPECT_TRUE(same(copy_of(*other), before));
  EXPECT_EQ(loaded.epoch, 2U);
  EXPECT_EQ(loaded.metadata.at("loss"), "0.25");
  EXPECT_EQ(loaded.training->step, 2U);
  EXPECT_DOUBLE_EQ(other_adam.param_groups()[0].options().get_lr(), 0.01);
  EXPECT_THAT(files(), ElementsAre("model.ckpt"));
}

TEST_F(AsyncCheckpointTest, IsTheFileThatSaveCheckpointWrites) {
  const WideNet net;
  save_checkpoint(folder_ / "other.ckpt", Group(), net, {.epoch = 2});
  AsyncCheckpoint checkpoint{Group()};
  checkpoint.save(path_, net, {.epoch = 2});
  checkpoint.wait();
  EXPECT_EQ(text_in(path_), text_in(folder_ / "other.ckpt"));
}

using MakeOptimizer = std::function<std::unique_ptr<Optimizer>(const std::vector<torch::Tensor>&)>;

TEST_F(AsyncCheckpointTest, LetsEveryOptimizerGoOnAsIfItHadNeverStopped) {
  using namespace torch::optim;
  const SGDOptions momentum = SGDOptions(0.01).momentum(0.9);
  const std::vector<MakeOptimizer> kinds = {
      [&](const auto& p) { return std::make_unique<SGD>(p, momentum); },
      [&](const auto& p) { return std::make_unique<SGD>(p, SGDOptions(0.01)); },  // has no state
      [&](const auto& p) { return std::make_unique<FusedSGD>(p, momentum); },
      [](const auto& p) { return std::make_unique<Adam>(p, AdamOptions(0.01).amsgrad(true)); },
      [](const auto& p) { return std::make_unique<FusedAdamW>(p, AdamWOptions(0.01)); },
      [](const auto& p) { return std::make_unique<RMSprop>(p, RMSpropOptions(0.01).momentum(0.5)); },
  };
  for (std::size_t kind = 0; kind < kinds.size(); ++kind) {
    WideNet net, other;
    const auto optimizer = kinds[kind](net->parameters()), resumed = kinds[kind](other->parameters());
    AsyncCheckpoint checkpoint{Group()};
    for (int save = 1; save <= 2; ++save) {  // into the memory of the one before
      train(net, *optimizer, Group(), save * 2 - 2, save * 2);
      checkpoint.save(path_, net, *optimizer);
    }
    train(net, *optimizer, Group(), 4, 7);
    checkpoint.wait();
    load_checkpoint(path_, Group(), other, *resumed);
    train(other, *resumed, Group(), 4, 7);
    EXPECT_TRUE(same(copy_of(*other), copy_of(*net))) << "optimizer " << kind;
  }
}

TEST_F(AsyncCheckpointTest, KeepsOptionsThatAreNotTheOptimizersDefaults) {
  WideNet net, other;
  const auto make = [](const WideNet& model, double momentum) {
    std::vector<torch::optim::OptimizerParamGroup> groups;
    groups.emplace_back(model->first->parameters());
    groups.emplace_back(model->second->parameters());
    auto sgd = std::make_unique<torch::optim::SGD>(groups, SGDOptions(0.5).momentum(momentum));
    static_cast<SGDOptions&>(sgd->param_groups()[1].options()).momentum(0).lr(1e-3);
    return sgd;
  };
  const auto sgd = make(net, 0.9), resumed = make(other, 0.1);
  AsyncCheckpoint checkpoint{Group()};
  checkpoint.save(path_, net, *sgd);
  checkpoint.wait();
  load_checkpoint(path_, Group(), other, *resumed);
  for (std::size_t i = 0; i < 2; ++i) {
    const auto& expected = static_cast<const SGDOptions&>(sgd->param_groups()[i].options());
    EXPECT_TRUE(static_cast<const SGDOptions&>(resumed->param_groups()[i].options()) == expected) << i;
  }
}

TEST_F(AsyncCheckpointTest, IsOfAllRanks) {
  std::vector<torch::Tensor> whole, resumed;
  test::on_ranks(2, [&](const Group& group) {
    WideNet net;
    torch::optim::SGD sgd(net->parameters(), SGDOptions(0.01).momentum(0.9));
    DistributedDataParallel ddp(net, group);
    AsyncCheckpoint checkpoint(group);
    train(ddp, sgd, group, 0, 2);
    checkpoint.save(group.rank() == 0 ? path_ : fs::path("/nobody/else/needs/it"), ddp, sgd, {.epoch = 2});
    train(ddp, sgd, group, 2, 4);  // collectives of the group go on meanwhile
    checkpoint.wait();
    if (group.rank() == 0) whole = copy_of(*net);
  });
  test::on_ranks(2, [&](const Group& group) {
    WideNet net;
    torch::optim::SGD sgd(net->parameters(), SGDOptions(1));
    DistributedDataParallel ddp(net, group);
    EXPECT_EQ(load_checkpoint(path_, group, ddp, sgd).epoch, 2U);
    train(ddp, sgd, group, 2, 4);
    if (group.rank() == 0) resumed = copy_of(*net);
  });
  EXPECT_TRUE(same(resumed, whole));
}

TEST_F(AsyncCheckpointTest, OfAShardedOptimizerMayBeWholeOrSharded) {
  for (const CheckpointOptions& options : {CheckpointOptions{}, sharded}) {
    std::vector<torch::Tensor> whole, resumed;
    const auto run = [&](const std::function<void(WideNet&, ShardedSGD&, const Group&)>& body,
                         std::vector<torch::Tensor>& result) {
      test::on_ranks(3, [&](const Group& group) {
        WideNet net;
        ShardedSGD optimizer(*net, group, SGDOptions(0.01).momentum(0.9));
        body(net, optimizer, group);
        if (group.rank() == 0) result = copy_of(*net);
        barrier(group).wait();
      });
    };
    run(
        [&](WideNet& net, ShardedSGD& optimizer, const Group& group) {
          AsyncCheckpoint checkpoint(group);
          for (int save = 1; save <= 2; ++save) {
            train(net, optimizer, group, save * 2 - 2, save * 2);
            checkpoint.save(path_, net, optimizer, {.epoch = static_cast<std::uint64_t>(save)}, options);
          }
          train(net, optimizer, group, 4, 6);
          checkpoint.wait();
        },
        whole);
    EXPECT_EQ(files().size(), options.sharded ? 4U : 1U);
    run(
        [&](WideNet& net, ShardedSGD& optimizer, const Group& group) {
          train(net, optimizer, group, 7, 8);
          EXPECT_EQ(load_checkpoint(path_, group, net, optimizer).epoch, 2U);
          train(net, optimizer, group, 4, 6);
        },
        resumed);
    EXPECT_TRUE(same(resumed, whole)) << options.sharded;
  }
}

TEST_F(AsyncCheckpointTest, ShardedTakesItsPlaceWhenAllRanksKnow) {
  const auto save = [&](const Group& group, std::uint64_t epoch,
                        const std::function<void(AsyncCheckpoint&)>& then) {
    WideNet net;
    ShardedSGD optimizer(*net, group, SGDOptions(0.01).momentum(0.9));
    train(net, optimizer, group, 0, 1);
    AsyncCheckpoint checkpoint(group);
    checkpoint.save(path_, net, optimizer, {.epoch = epoch}, sharded);
    then(checkpoint);
  };
  test::on_ranks(
      2, [&](const Group& group) { save(group, 1, [](AsyncCheckpoint& checkpoint) { checkpoint.wait(); }); });
  const auto before = files();
  const std::string old = text_in(path_);
  test::on_ranks(2, [&](const Group& group) {
    save(group, 2, [&](AsyncCheckpoint& checkpoint) {
      EXPECT_EQ(text_in(path_), old);
      barrier(group).wait();
      checkpoint.wait();
      EXPECT_EQ(saved_epoch(), 2U);
    });
  });
  EXPECT_EQ(files().size(), 3U);
  test::on_ranks(2,
                 [&](const Group& group) { save(group, 3, [](AsyncCheckpoint&) {}); });  // never waited for
  EXPECT_EQ(saved_epoch(), 2U);
  remove_checkpoint_leftovers(path_, Group());
  EXPECT_EQ(files().size(), 3U);
}

TEST_F(AsyncCheckpointTest, WaitsForTheSaveBefore) {
  WideNet net;
  AsyncCheckpoint checkpoint{Group()};
  for (std::uint64_t epoch = 1; epoch <= 20; ++epoch) {
    checkpoint.save(path_, net, {.epoch = epoch});
    if (epoch > 1) {
      EXPECT_GE(saved_epoch(), epoch - 1);
    }
  }
  checkpoint.wait();
  EXPECT_EQ(saved_epoch(), 20U);
  checkpoint.wait();  // there is nothing to wait for
  EXPECT_THAT(files(), ElementsAre("model.ckpt"));
}

TEST_F(AsyncCheckpointTest, WaitsWhenItGoes) {
  WideNet net;
  {
    AsyncCheckpoint checkpoint{Group()};
    checkpoint.save(path_, net, {.epoch = 3});
  }
  EXPECT_EQ(saved_epoch(), 3U);
}

TEST_F(AsyncCheckpointTest, FailsOnAllRanksAlikeOnceInTheNextCall) {
  for (const bool in_save : {false, true}) {
    const auto absent = folder_ / (in_save ? "absent" : "missing");
    const auto endings = test::run_ranks(3, [&](const Group& group) {
      WideNet net;
      AsyncCheckpoint checkpoint(group);
      checkpoint.save(absent / "model.ckpt", WideNet());
      const std::string failure = refusal([&] {
        if (in_save)
          checkpoint.save(path_, net);
        else
          checkpoint.wait();
      });
      EXPECT_THAT(failure,
                  HasSubstr("system: cannot write the checkpoint " + (absent / "model.ckpt").string() +
                            ": there is no folder " + absent.string() + "; make it first"));
      EXPECT_TRUE(files().empty()) << "the save that failed to begin writes nothing";
      barrier(group).wait();
      checkpoint.wait();
      checkpoint.save(path_, net, {.epoch = 4});
      checkpoint.wait();
    });
    EXPECT_THAT(endings, Each(Field(&test::Ending::ok, true))) << endings[0].text << endings[1].text;
    EXPECT_EQ(saved_epoch(), 4U);
    fs::remove(path_);
  }
}

TEST_F(AsyncCheckpointTest, FailsOnAllRanksWhereOneCannotWriteItsShard) {
  const auto save = [&](const std::function<fs::path(int)>& path_of, std::uint64_t epoch) {
    const auto endings = test::run_ranks(3, [&](const Group& group) {
      WideNet net;
      ShardedSGD optimizer(*net, group, SGDOptions(0.01).momentum(0.9));
      train(net, optimizer, group, 0, 1);
      AsyncCheckpoint checkpoint(group);
      checkpoint.save(path_of(group.rank()), net, optimizer, {.epoch = epoch}, sharded);
      checkpoint.wait();
    });
    for (const auto& ending : endings) EXPECT_EQ(ending.text, endings[0].text);
    return endings[0].text;
  };
  EXPECT_EQ(save([&](int) { return path_; }, 1), "");
  const auto before = files();
  EXPECT_THAT(save([&](int rank) { return rank == 1 ? folder_ / "absent" / "model.ckpt" : path_; }, 2),
              HasSubstr("rank 1: cannot write the shard of the checkpoint "));
  EXPECT_EQ(files(), before);
  EXPECT_EQ(saved_epoch(), 1U);
  fs::create_directory(folder_ / "taken");  // shards can be written beside it, but no file in its place
  EXPECT_THAT(save([&](int) { return folder_ / "taken"; }, 2), HasSubstr("it is a folder"));
  fs::remove(folder_ / "taken");
  EXPECT_EQ(files(), before);
}

TEST_F(AsyncCheckpointTest, StaysAsItWasWhereThereIsNoRoomForANewOne) {
  WideNet net;
  torch::nn::Linear large(200, 200);
  save_checkpoint(path_, Group(), net);
  const std::string before = text_in(path_);
  AsyncCheckpoint checkpoint{Group()};
  rlimit limit{}, small{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &limit), 0);
  small = {.rlim_cur = 20'000, .rlim_max = limit.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  checkpoint.save(path_, large);
  const std::string failure = refusal([&] { checkpoint.wait(); });
  ::setrlimit(RLIMIT_FSIZE, &limit);
  EXPECT_THAT(failure, HasSubstr("system: cannot write the checkpoint " + path_.string()));
  EXPECT_THAT(failure, HasSubstr("File too large"));
  EXPECT_EQ(text_in(path_), before);
  EXPECT_THAT(files(), ElementsAre("model.ckpt"));
}

TEST_F(AsyncCheckpointTest, RefusesAtOnceWhatItCannotCopy) {
  struct Meta : torch::nn::Module {
    Meta() { register_buffer("b", torch::empty({3}, torch::kMeta)); }
  };
  const auto endings = test::run_ranks(2, [&](const Group& group) {
    AsyncCheckpoint checkpoint(group);
    EXPECT_THAT(refusal([&] { checkpoint.save(path_, Meta()); }), HasSubstr("unsupported: buffer b is "));
    checkpoint.wait();
    WideNet net;
    checkpoint.save(path_, net, {.epoch = 1});
    checkpoint.wait();
  });
  EXPECT_THAT(endings, Each(Field(&test::Ending::ok, true)));
  EXPECT_EQ(saved_epoch(), 1U);
}

TEST_F(AsyncCheckpointTest, IsTheOldOneOrTheNewOneWhereARankLeavesMeanwhile) {
  for (const CheckpointOptions& options : {CheckpointOptions{}, sharded}) {
    fs::remove_all(folder_);
    fs::create_directory(folder_);
    const auto endings = test::run_ranks(2, [&](const Group& group) {
      WideNet net;
      ShardedSGD optimizer(*net, group, SGDOptions(0.01).momentum(0.9));
      train(net, optimizer, group, 0, 1);
      save_checkpoint(path_, group, net, optimizer, {.epoch = 1}, options);
      AsyncCheckpoint checkpoint(group);
      checkpoint.save(path_, net, optimizer, {.epoch = 2}, options);
      if (group.rank() == 1) throw Error(ErrorCode::invalid_argument, "leaves");
      checkpoint.wait();
    });
    EXPECT_EQ(endings[1].text, "leaves");
    if (options.sharded) {
      EXPECT_FALSE(endings[0].ok) << "rank 0 cannot know how it is with rank 1's shard";
    }
    EXPECT_EQ(saved_epoch(), options.sharded ? 1U : 2U);
    remove_checkpoint_leftovers(path_, Group());
    EXPECT_EQ(files().size(), options.sharded ? 3U : 1U);
  }
}

TEST_F(AsyncCheckpointTest, LeavesTheFilesToTheProcessThatForked) {
  WideNet net;
  ShardedSGD optimizer(*net, Group(), SGDOptions(0.01).momentum(0.9));
  auto checkpoint = std::make_unique<AsyncCheckpoint>(Group());
  checkpoint->save(path_, net, optimizer, {.epoch = 1}, sharded);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    checkpoint.reset();
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  checkpoint->wait();
  EXPECT_EQ(saved_epoch(), 1U);
}

}  // namespace
}  // namespace lockstep
