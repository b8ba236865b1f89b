// Adagrad, whose state begins before its first step: it trains as one process does, and goes on from checkpoints.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "lockstep/train/checkpoint/async_checkpoint.h"
#include "lockstep/train/checkpoint/checkpoint.h"
#include "lockstep/train/data_parallel/data_parallel_test.h"
#include "lockstep/train/horovod/distributed_optimizer.h"
#include "lockstep/train/replicas/broadcast_state.h"
#include "lockstep/train/tensor/ranks_test.h"

namespace lockstep {
namespace {

using namespace test;
using torch::optim::Adagrad;
using torch::optim::AdagradOptions;

constexpr int ranks = 3, steps = 4;

AdagradOptions options() { return AdagradOptions(0.2).lr_decay(0.1).weight_decay(0.01); }

/// Samples of one rank: [2, 3].
torch::Tensor samples_of(int rank, int step) {
  return torch::arange(6).view({2, 3}) * 0.1 + 0.3 * rank - 0.2 * step;
}

torch::Tensor loss_around_half(const torch::Tensor& output) { return (output - 0.5).pow(2).mean(); }

/// One process with all ranks' samples.
torch::nn::Linear trained_alone() {
  auto net = ones(3, 2);
  Adagrad adagrad(net->parameters(), options());
  for (int step = 0; step < steps; ++step) {
    std::vector<torch::Tensor> samples;
    for (int rank = 0; rank < ranks; ++rank) samples.push_back(samples_of(rank, step));
    adagrad.zero_grad();
    loss_around_half(net->forward(torch::cat(samples))).backward();
    adagrad.step();
  }
  return net;
}

void expect_trained(const torch::nn::Linear& net) {
  const auto alone = trained_alone();
  EXPECT_TRUE(torch::allclose(net->weight, alone->weight, 1e-5, 1e-6)) << net->weight << alone->weight;
  EXPECT_TRUE(torch::allclose(net->bias, alone->bias, 1e-5, 1e-6)) << net->bias << alone->bias;
  EXPECT_FALSE(torch::allclose(net->bias, torch::ones({2}))) << "it trained";
}

TEST(AdagradTraining, WithDistributedDataParallelIsWhatOneProcessDoes) {
  on_ranks(ranks, [](const Group& group) {
    auto net = ones(3, 2);
    DistributedDataParallel ddp(net, group);
    Adagrad adagrad(net->parameters(), options());
    for (int step = 0; step < steps; ++step) {
      adagrad.zero_grad();
      loss_around_half(ddp(samples_of(group.rank(), step))).backward();
      adagrad.step();
    }
    expect_trained(net);
  });
}

TEST(AdagradTraining, WithDistributedOptimizerIsWhatOneProcessDoes) {
  on_ranks(ranks, [](const Group& group) {
    auto net = ones(3, 2);
    Adagrad adagrad(net->parameters(), options());
    DistributedOptimizer optimizer(adagrad, *net, group);
    for (int step = 0; step < steps; ++step) {
      optimizer.zero_grad();
      loss_around_half(net->forward(samples_of(group.rank(), step))).backward();
      optimizer.step();
    }
    expect_trained(net);
  });
}

/// A model and its optimizer on one rank.
struct Training {
  explicit Training(const Group& group) : ddp(net, group) {}
  void train(int rank, int from, int to) {
    for (int step = from; step < to; ++step) {
      adagrad.zero_grad();
      loss_around_half(ddp(samples_of(rank, step))).backward();
      adagrad.step();
    }
  }
  torch::nn::Linear net = ones(3, 2);
  DistributedDataParallel<torch::nn::LinearImpl> ddp;
  Adagrad adagrad{net->parameters(), options()};
};

class AdagradCheckpoint : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "adagrad.XXXXXX";
    folder_ = ::mkdtemp(pattern.data());
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  /// A run that goes on from what `save` has written is the one that was not interrupted.
  void expect_to_go_on(
      const std::function<void(const Group&, const std::filesystem::path&, const Training&)>& save) const {
    const auto path = folder_ / "model.ckpt";
    on_ranks(2, [&](const Group& group) {
      Training run(group);
      run.train(group.rank(), 0, 2);
      save(group, path, run);
      run.train(group.rank(), 2, steps);
      Training other(group);
      load_checkpoint(path, group, other.net, other.adagrad);
      other.train(group.rank(), 2, steps);
      EXPECT_TRUE(same_bits(other.net->weight.detach(), run.net->weight.detach()));
      Training without_state(group);
      load_checkpoint(path, group, without_state.net);
      without_state.train(group.rank(), 2, steps);
      EXPECT_FALSE(torch::allclose(without_state.net->weight, run.net->weight)) << "the state matters";
    });
  }

  std::filesystem::path folder_;
};

TEST_F(AdagradCheckpoint, HoldsItsState) {
  expect_to_go_on([](const Group& group, const std::filesystem::path& path, const Training& run) {
    save_checkpoint(path, group, run.net, run.adagrad);
  });
}

TEST_F(AdagradCheckpoint, HoldsItsStateWhereItIsWrittenWhileTrainingGoesOn) {
  expect_to_go_on([](const Group& group, const std::filesystem::path& path, const Training& run) {
    AsyncCheckpoint async(group);
    async.save(path, run.net, run.adagrad);
    async.wait();
  });
}

TEST(AdagradState, OfRank0BecomesEverybodys) {
  on_ranks(2, [](const Group& group) {
    auto net = ones(3, 2);
    Adagrad adagrad(net->parameters(), options());
    for (auto& [parameter, state] : adagrad.state()) {
      auto& sum = static_cast<torch::optim::AdagradParamState&>(*state).sum();
      sum.fill_(group.rank() + 5);
    }
    broadcast_optimizer_state(group, adagrad);
    ASSERT_EQ(adagrad.state().size(), 2U);
    for (auto& [parameter, state] : adagrad.state()) {
      const auto& sum = static_cast<torch::optim::AdagradParamState&>(*state).sum();
      EXPECT_TRUE(sum.eq(5).all().item<bool>()) << sum;
    }
  });
}

}  // namespace
}  // namespace lockstep
