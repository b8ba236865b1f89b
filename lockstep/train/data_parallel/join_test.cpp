// Ranks that run out of inputs at different times.
#include <gmock/gmock.h>

#include "lockstep/group/collectives.h"
#include "lockstep/train/data_parallel/data_parallel_test.h"
#include "lockstep/train/tensor/ranks_test.h"

namespace lockstep {
namespace {

using namespace test;
using testing::HasSubstr;

/// What rank `rank` has at its step `step`.
torch::Tensor input_at(int rank, int step) {
  return torch::arange(3).to(torch::kFloat64).view({1, 3}) * 0.1 + (rank + 1) * 0.3 + step * 0.2;
}

torch::nn::Sequential make_net() {
  torch::nn::Sequential net(ones(3, 4), torch::nn::Tanh(), ones(4, 2));
  net->to(torch::kFloat64);
  const torch::NoGradGuard no_grad;
  for (auto& parameter : net->parameters()) parameter.mul_(0.2);
  return net;
}

torch::Tensor loss_of(const torch::Tensor& output) { return (output - 1).pow(2).mean(); }

/// The definition: at each step the average over the ranks that have an input, divided by `divisor` if that
/// is not 0.
torch::nn::Sequential by_definition(const std::vector<int>& steps_of, int divisor) {
  auto net = make_net();
  torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  for (int step = 0; step < *std::max_element(steps_of.begin(), steps_of.end()); ++step) {
    optimizer.zero_grad();
    int active = 0;
    torch::Tensor loss = torch::zeros({}, torch::kFloat64);
    for (int rank = 0; rank < static_cast<int>(steps_of.size()); ++rank) {
      if (step >= steps_of[static_cast<std::size_t>(rank)]) continue;
      ++active;
      loss = loss + loss_of(net->forward(input_at(rank, step)));
    }
    (loss / (divisor == 0 ? active : divisor)).backward();
    optimizer.step();
  }
  return net;
}

void expect_as_defined(const std::vector<int>& steps_of, const DataParallelOptions& ddp_options,
                       const JoinOptions& options = {}) {
  const int ranks = static_cast<int>(steps_of.size());
  const auto expected = by_definition(steps_of, options.divide_by_initial_size ? ranks : 0);
  on_ranks(ranks, [&](const Group& group) {
    auto net = make_net();
    DistributedDataParallel ddp(net, group, ddp_options);
    torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
    ddp.join(
        [&] {
          for (int step = 0; step < steps_of[static_cast<std::size_t>(group.rank())]; ++step) {
            optimizer.zero_grad();
            loss_of(ddp(input_at(group.rank(), step))).backward();
            optimizer.step();
          }
        },
        options);
    for (std::size_t i = 0; i < expected->parameters().size(); ++i) {
      EXPECT_TRUE(torch::allclose(net->parameters()[i], expected->parameters()[i], 1e-12, 1e-14))
          << "rank " << group.rank();
    }
  });
}

DataParallelOptions with(bool DataParallelOptions::*option) {
  DataParallelOptions options = small_buckets;
  options.*option = true;
  return options;
}

TEST(Join, IsTheAverageOfThoseThatHaveInputs) {
  for (const auto& steps_of : std::vector<std::vector<int>>{
           {1, 7}, {7, 1}, {3, 4}, {1, 2, 3, 4, 5, 6, 7}, {5, 0, 2}, {0, 3}, {4, 4}, {0, 0}}) {
    expect_as_defined(steps_of, small_buckets);
  }
}

TEST(Join, ServesEveryOption) {
  expect_as_defined({2, 5, 3}, with(&DataParallelOptions::find_unused_parameters));
  expect_as_defined({2, 5, 3}, with(&DataParallelOptions::static_graph));
  expect_as_defined({0, 5, 3}, with(&DataParallelOptions::static_graph));
  expect_as_defined({2, 5, 3}, small_buckets, {.divide_by_initial_size = true});
}

TEST(Join, LeavesSparseGradientsToThoseThatHaveInputs) {
  on_ranks(2, [](const Group& group) {
    torch::nn::Embedding table(torch::nn::EmbeddingOptions(4, 2).sparse(true));
    DistributedDataParallel ddp(table, group);
    const int steps = group.rank() == 0 ? 1 : 3;
    ddp.join([&] {
      for (int step = 0; step < steps; ++step) {
        table->zero_grad();
        ddp(torch::tensor({group.rank(), group.rank()})).sum().backward();
      }
    });
    if (group.rank() == 0) return;
    // Of the last step, which rank 1 had alone.
    auto expected = torch::zeros({4, 2});
    expected[1] = 2;
    EXPECT_TRUE(torch::allclose(table->weight.grad().to_dense(), expected)) << table->weight.grad();
  });
}

TEST(Join, StaysUsableAfterAnErrorThatAllRanksHaveSeen) {
  on_ranks(2, [](const Group& group) {
    auto net = make_net();
    DistributedDataParallel ddp(net, group);
    EXPECT_THROW(ddp.join(
                     [&] {
                       for (int step = 0; step < 3 - group.rank(); ++step)
                         loss_of(ddp(input_at(group.rank(), step))).backward();
                     },
                     {.throw_on_early_termination = true}),
                 Error);
    loss_of(ddp(input_at(group.rank(), 9))).backward();
    barrier(group).wait();
  });
}

TEST(Join, GivesEverybodyTheBuffersOfThoseThatTrainedLast) {
  on_ranks(3, [](const Group& group) {
    auto norm = torch::nn::BatchNorm1d(2);
    DistributedDataParallel ddp(norm, group);
    const int steps = group.rank() == 1 ? 4 : group.rank();
    ddp.join([&] {
      for (int step = 0; step < steps; ++step) ddp(torch::full({4, 2}, 1.0)).sum().backward();
    });
    EXPECT_EQ(norm->num_batches_tracked.item<std::int64_t>(), 4);
    EXPECT_NEAR(norm->running_mean[0].item<double>(), 1 - std::pow(0.9, 4), 1e-6);
  });
}

TEST(Join, MayStopAllAsSoonAsOneHasNoInputs) {
  const auto endings = run_ranks(2, [](const Group& group) {
    auto net = make_net();
    DistributedDataParallel ddp(net, group);
    ddp.join(
        [&] {
          for (int step = 0; step < 3 - group.rank(); ++step)
            loss_of(ddp(input_at(group.rank(), step))).backward();
        },
        {.throw_on_early_termination = true});
  });
  for (const auto& ending : endings) {
    EXPECT_EQ(ending.code, ErrorCode::aborted);
    EXPECT_EQ(ending.peer, 1);
    EXPECT_THAT(ending.text, HasSubstr("rank 1 has no inputs left after 2 steps, while others have"));
  }
}

TEST(Join, LetsTheOthersKnowOfAnExceptionInTheBody) {
  const auto endings = run_ranks(2, [](const Group& group) {
    auto net = make_net();
    DistributedDataParallel ddp(net, group);
    ddp.join([&] {
      for (int step = 0; step < 2; ++step) {
        if (group.rank() == 1) throw std::runtime_error("no such file");
        loss_of(ddp(input_at(group.rank(), step))).backward();
      }
    });
  });
  EXPECT_EQ(endings[1].text, "no such file");
  EXPECT_EQ(endings[0].peer, 1);
  EXPECT_THAT(endings[0].text, HasSubstr("rank 1 gave up: an exception ended what it does in join() early"));
}

TEST(Join, IsTheBodyAloneInAGroupOfOne) {
  auto net = make_net();
  DistributedDataParallel ddp(net, Group());
  bool ran = false;
  ddp.join([&] { ran = true; });
  EXPECT_TRUE(ran);
}

}  // namespace
}  // namespace lockstep
