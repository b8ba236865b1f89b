#include "lockstep/train/replicas/sync_batch_norm.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/failure_test.h"
#include "lockstep/group/collectives.h"
#include "lockstep/train/data_parallel/data_parallel.h"
#include "lockstep/train/sharded/sharded_optimizer.h"
#include "lockstep/train/tensor/ranks_test.h"

namespace lockstep {
namespace {

using test::failure_of;
using test::on_ranks;
using test::run_ranks;
using ::testing::HasSubstr;
using torch::nn::BatchNorm1d;
using torch::nn::BatchNorm2d;
using torch::nn::BatchNormOptions;

/// A batch norm as programs have them: a member, called by that.
struct Net : torch::nn::Module {
  explicit Net(torch::ScalarType type) {
    norm = register_module("norm", BatchNorm2d(5));
    head = register_module(
        "head", torch::nn::Sequential(torch::nn::Flatten(), torch::nn::Linear(5 * 3 * 2, 4), BatchNorm1d(4)));
    to(type);
    const torch::NoGradGuard no_grad;
    norm->weight.copy_(torch::linspace(0.5, 2, 5));
    norm->bias.copy_(torch::linspace(-1, 1, 5));
  }
  torch::Tensor forward(const torch::Tensor& x) { return head->forward(torch::tanh(norm->forward(x))); }
  BatchNorm2d norm{nullptr};
  torch::nn::Sequential head{nullptr};
};

/// Ranks that are threads share libtorch's random numbers.
void copy_parameters(const Net& from, Net& to) {
  const torch::NoGradGuard no_grad;
  for (const auto& item : from.named_parameters()) to.named_parameters()[item.key()].copy_(item.value());
}

/// Samples of all ranks together: rank r has `counts[r]` of them.
torch::Tensor samples(const std::vector<std::int64_t>& counts) {
  std::int64_t all = 0;
  for (const auto count : counts) all += count;
  torch::manual_seed(5);
  return 3 * torch::randn({all, 5, 3, 2}, torch::kFloat64) +
         torch::arange(5, torch::kFloat64).view({1, 5, 1, 1});
}

torch::Tensor part(const torch::Tensor& all, const std::vector<std::int64_t>& counts, int rank) {
  std::int64_t begin = 0;
  for (int before = 0; before < rank; ++before) begin += counts[static_cast<std::size_t>(before)];
  return all.narrow(0, begin, counts[static_cast<std::size_t>(rank)]).clone();
}

void expect_close(const torch::Tensor& found, const torch::Tensor& expected, double tolerance,
                  const char* what) {
  ASSERT_EQ(found.sizes(), expected.sizes()) << what;
  if (expected.numel() == 0) return;
  // A bias that a batch norm follows has no gradient but rounding errors.
  const double scale = 1 + expected.abs().max().item<double>();
  const double difference = ((found - expected).abs().max() / scale).item<double>();
  EXPECT_LT(difference, tolerance) << what;
}

/// Every rank with its part, and one process with all samples, agree in everything.
void expect_as_one_process(const std::vector<std::int64_t>& counts, torch::ScalarType type,
                           double tolerance) {
  const auto all = samples(counts).to(type);
  Net alone(type);
  const auto whole = all.clone().requires_grad_();
  const auto output = alone.forward(whole);
  output.pow(3).sum().backward();
  on_ranks(static_cast<int>(counts.size()), [&](const Group& group) {
    Net net(type);
    copy_parameters(alone, net);
    EXPECT_EQ(convert_sync_batch_norm(net, group), 2U);
    const auto input = part(all, counts, group.rank()).requires_grad_();
    const auto found = net.forward(input);
    expect_close(found, part(output.detach(), counts, group.rank()), tolerance, "output");
    found.pow(3).sum().backward();
    expect_close(input.grad(), part(whole.grad(), counts, group.rank()), tolerance, "gradient of the input");
    for (const auto& item : net.named_parameters()) {
      auto gradient = item.value().grad().to(torch::kFloat64).contiguous();
      const std::span values(gradient.data_ptr<double>(), static_cast<std::size_t>(gradient.numel()));
      all_reduce(group, values).wait();
      expect_close(gradient, alone.named_parameters()[item.key()].grad().to(torch::kFloat64), tolerance,
                   item.key().c_str());
    }
    for (const auto& item : net.named_buffers())
      expect_close(item.value().to(torch::kFloat64), alone.named_buffers()[item.key()].to(torch::kFloat64),
                   tolerance, item.key().c_str());
    net.eval();
    alone.eval();
    barrier(group).wait();
    if (group.rank() == 0) net.forward(input);  // alone: nobody waits for the others
  });
}

TEST(SyncBatchNorm, IsWhatOneProcessWithAllSamplesDoes) {
  for (const int ranks : {2, 3, 5}) {
    expect_as_one_process(std::vector<std::int64_t>(static_cast<std::size_t>(ranks), 4), torch::kFloat64,
                          1e-10);
    expect_as_one_process(std::vector<std::int64_t>(static_cast<std::size_t>(ranks), 4), torch::kFloat32,
                          1e-3);
  }
}

TEST(SyncBatchNorm, TakesDifferentNumbersOfSamplesAndNone) {
  expect_as_one_process({5, 2, 3}, torch::kFloat64, 1e-10);
  expect_as_one_process({3, 0}, torch::kFloat64, 1e-10);
}

TEST(SyncBatchNorm, LeavesOtherModulesAlone) {
  on_ranks(2, [](const Group& group) {
    Net converted(torch::kFloat64);
    EXPECT_EQ(convert_sync_batch_norm(converted, group), 2U);
    BatchNorm1d ordinary(3);
    const auto input = torch::full({4, 3}, group.rank()) + torch::arange(4).view({4, 1});
    const auto mean = ordinary->forward(input.to(torch::kFloat32)).mean().item<double>();
    EXPECT_NEAR(mean, 0, 1e-6) << "its own mean";
    EXPECT_NEAR(ordinary->running_mean[0].item<double>(), 0.1 * (group.rank() + 1.5), 1e-6);
    torch::nn::Linear none(2, 2);
    EXPECT_EQ(convert_sync_batch_norm(*none, group), 0U);
  });
}

TEST(SyncBatchNorm, TrainsWithAShardedOptimizerAsOneProcessDoes) {
  const std::vector<std::int64_t> counts = {4, 4, 4};
  const auto all = samples(counts);
  Net alone(torch::kFloat64), start(torch::kFloat64);
  copy_parameters(alone, start);
  FusedSGD plain(alone.parameters(), torch::optim::SGDOptions(0.05).momentum(0.9));
  for (int step = 0; step < 10; ++step) {
    plain.zero_grad();
    (alone.forward(all) - 1).pow(3).abs().mean().backward();
    plain.step();
  }
  on_ranks(3, [&](const Group& group) {
    Net net(torch::kFloat64);
    copy_parameters(start, net);
    convert_sync_batch_norm(net, group);
    ShardedOptimizer<torch::optim::SGD> sharded(net, group, torch::optim::SGDOptions(0.05).momentum(0.9));
    for (int step = 0; step < 10; ++step) {
      sharded.zero_grad();
      (net.forward(part(all, counts, group.rank())) - 1).pow(3).abs().mean().backward();
      sharded.step();
    }
    for (const auto& item : alone.named_parameters())
      expect_close(net.named_parameters()[item.key()], item.value(), 1e-9, item.key().c_str());
  });
}

TEST(SyncBatchNorm, IsNotForRanksThatJoin) {
  const auto endings = run_ranks(2, [](const Group& group) {
    torch::nn::Sequential net(torch::nn::Linear(3, 4), torch::nn::BatchNorm1d(4));
    EXPECT_FALSE(has_sync_batch_norm(*net));
    convert_sync_batch_norm(*net, group);
    EXPECT_TRUE(has_sync_batch_norm(*net));
    DistributedDataParallel ddp(net, group);
    const auto train = [&] {
      for (int step = 0; step < 2 + group.rank(); ++step) ddp(torch::randn({4, 3})).sum().backward();
    };
    EXPECT_EQ(failure_of([&] { ddp.join(train); }, ErrorCode::invalid_argument),
              "join() with a synchronised batch norm: ranks that have no inputs left take no part in its "
              "forward; set throw_on_early_termination, or give all ranks as many batches");
    ddp.join(train, {.throw_on_early_termination = true});
  });
  for (const auto& ending : endings)
    EXPECT_THAT(ending.text, HasSubstr("rank 0 has no inputs left after 2 steps"));
}

TEST(SyncBatchNorm, RefusesWhatCannotWork) {
  on_ranks(2, [](const Group& group) {
    torch::nn::Sequential net(torch::nn::Linear(2, 3),
                              BatchNorm1d(BatchNormOptions(3).affine(false).track_running_stats(false)));
    try {
      convert_sync_batch_norm(*net, group);
      ADD_FAILURE() << "it is converted";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::unsupported);
      EXPECT_STREQ(
          error.what(),
          "module 1 is a batch norm with neither affine parameters nor running statistics, and cannot be "
          "synchronised; give it one of them");
    }
    BatchNorm1d lonely(3);
    convert_sync_batch_norm(*lonely, group);
    try {
      lonely->forward(torch::ones({0, 3}));
      ADD_FAILURE() << "no value";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      EXPECT_STREQ(error.what(),
                   "batch norm needs two values for a channel in training; all 2 ranks together have 0");
    }
  });
  BatchNorm1d left(3);
  on_ranks(2, [&](const Group& group) {
    if (group.rank() == 0) convert_sync_batch_norm(*left, group);
  });
  EXPECT_THROW(left->forward(torch::ones({4, 3})), Error) << "its group has ended";
  left->eval();
  EXPECT_NO_THROW(left->forward(torch::ones({4, 3})));
}

}  // namespace
}  // namespace lockstep
