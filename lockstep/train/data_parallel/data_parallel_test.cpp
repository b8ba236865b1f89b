#include "lockstep/train/data_parallel/data_parallel_test.h"

#include "lockstep/group/collectives.h"
#include "lockstep/trace/recorder.h"
#include "lockstep/train/tensor/ranks_test.h"
#include "lockstep/train/tensor/tensor_collectives.h"

namespace lockstep {
namespace {

using namespace test;
using torch::nn::Linear;
using torch::nn::Sequential;

TEST(DataParallel, DeducesItsModuleFromHoldersAndPointers) {
  const Group alone;
  Linear holder(3, 2);
  Sequential sequential(Linear(3, 2));
  DistributedDataParallel of_holder(holder, alone);
  DistributedDataParallel of_sequential(sequential, alone);
  DistributedDataParallel of_pointer(holder.ptr(), alone);
  static_assert(std::is_same_v<decltype(of_holder), DistributedDataParallel<torch::nn::LinearImpl>>);
  static_assert(std::is_same_v<decltype(of_pointer), DistributedDataParallel<torch::nn::LinearImpl>>);
  static_assert(!std::is_copy_constructible_v<decltype(of_holder)>);
  EXPECT_EQ(of_sequential(row(1)).sizes(), (std::vector<std::int64_t>{1, 2}));
  of_holder.eval();
  EXPECT_FALSE(holder->is_training());
  of_holder.train();
  EXPECT_TRUE(of_holder.is_training());
  EXPECT_EQ(of_holder.module(), holder.ptr());
  EXPECT_EQ(of_holder.parameters().size(), 2U);
}

TEST(DataParallel, AveragesGradients) {
  on_ranks(3, [](const Group& group) {
    auto net = ones(3, 2);
    DistributedDataParallel ddp(net, group);
    ddp(row(group.rank() + 1)).sum().backward();
    expect_weight_gradient(net, average_of_inputs(group));
  });
}

TEST(DataParallel, StartsWithRank0sParametersAndBuffers) {
  on_ranks(3, [](const Group& group) {
    torch::nn::BatchNorm1d net(4);
    {
      const torch::NoGradGuard no_grad;
      for (auto& t : net->parameters()) t.fill_(group.rank() + 1);
      net->running_mean.fill_(group.rank() + 1);
      net->num_batches_tracked.fill_(group.rank() + 1);
    }
    const DistributedDataParallel ddp(net, group);
    EXPECT_TRUE(torch::equal(net->weight, torch::ones({4})));
    EXPECT_TRUE(torch::equal(net->running_mean, torch::ones({4})));
    EXPECT_EQ(net->num_batches_tracked.item<std::int64_t>(), 1);
  });
}

TEST(DataParallel, ServesAnOptimizerThatWasMadeBefore) {
  on_ranks(2, [](const Group& group) {
    torch::nn::Linear net(3, 2);
    torch::optim::SGD optimizer(net->parameters(), 0.5);
    DistributedDataParallel ddp(net, group);
    const auto before = net->weight.detach().clone();
    ddp(row(group.rank() + 1)).sum().backward();
    optimizer.step();
    EXPECT_TRUE(torch::allclose(net->weight, before - 0.5 * average_of_inputs(group)));
  });
}

TEST(DataParallel, AveragesAnewAfterEitherFormOfZeroGrad) {
  on_ranks(2, [](const Group& group) {
    for (const bool set_to_none : {true, false}) {
      auto net = ones(3, 2);
      DistributedDataParallel ddp(net, group, small_buckets);
      torch::optim::SGD sgd(net->parameters(), 0.1);
      for (int step = 1; step <= 3; ++step) {
        sgd.zero_grad(set_to_none);
        ddp(row(step * (group.rank() + 1))).sum().backward();
        expect_weight_gradient(net, step * average_of_inputs(group));
        ddp.zero_grad(set_to_none);
        ddp(row(group.rank() + 1)).sum().backward();
        expect_weight_gradient(net, average_of_inputs(group));
      }
    }
  });
}

TEST(DataParallel, AddsUpWithoutZeroGrad) {
  on_ranks(2, [](const Group& group) {
    auto net = ones(3, 2);
    DistributedDataParallel ddp(net, group, small_buckets);
    for (int step = 1; step <= 3; ++step) {
      ddp(row(group.rank() + 1)).sum().backward();
      expect_weight_gradient(net, step * average_of_inputs(group));
    }
  });
}

TEST(DataParallel, AddsToAGradientThatWasThereBefore) {
  on_ranks(2, [](const Group& group) {
    auto net = ones(3, 2);
    DistributedDataParallel ddp(net, group);
    const auto mine = torch::full_like(net->weight, 10);
    net->weight.mutable_grad() = mine;
    for (int step = 1; step <= 2; ++step) {
      ddp(row(group.rank() + 1)).sum().backward();
      expect_weight_gradient(net, 10 + step * average_of_inputs(group));
      EXPECT_EQ(net->weight.grad().data_ptr(), mine.data_ptr())
          << "the user's own tensor is to hold the average";
    }
  });
}

TEST(DataParallel, AveragesWhatBackwardsWithoutItHaveAdded) {
  on_ranks(2, [](const Group& group) {
    auto net = ones(3, 2);
    DistributedDataParallel ddp(net, group);
    net->forward(row(group.rank() + 1)).sum().backward();  // this rank's own
    expect_weight_gradient(net, group.rank() + 1);
    ddp(row(group.rank() + 1)).sum().backward();
    expect_weight_gradient(net, 2 * average_of_inputs(group));
  });
}

TEST(DataParallel, CopiesGradientsOnceAndLeavesThemInTheirBucket) {
  on_ranks(2, [](const Group& group) {
    auto net = ones(3, 2);
    DistributedDataParallel ddp(net, group, {.shared_heap = false});
    ddp(row(1)).sum().backward();
    const void* const place = net->weight.grad().data_ptr();
    for (const bool set_to_none : {true, false}) {
      net->zero_grad(set_to_none);
      ddp(row(1)).sum().backward();
      EXPECT_EQ(net->weight.grad().data_ptr(), place);
    }
  });
}

TEST(DataParallel, KeepsGradientsValidAfterItsEnd) {
  for (const bool is_in_heap : {false, true}) {
    on_ranks(2, [&](const Group& group) {
      auto net = ones(3, 2);
      const void* place = nullptr;
      {
        DistributedDataParallel ddp(net, group, {.shared_heap = is_in_heap});
        ddp(row(group.rank() + 1)).sum().backward();
        place = net->weight.grad().data_ptr();
      }
      expect_weight_gradient(net, average_of_inputs(group));
      EXPECT_EQ(net->weight.grad().data_ptr() == place, is_in_heap) << "else it was in a bucket";
      net->zero_grad();
      net->forward(row(group.rank() + 1)).sum().backward();
      expect_weight_gradient(net, group.rank() + 1);
      DistributedDataParallel again(net, group);  // the hooks are gone
      barrier(group).wait();
    });
  }
}

TEST(DataParallel, CommunicatesInTrainingOnly) {
  on_ranks(2, [](const Group& group) {
    auto net = ones(3, 2);
    DistributedDataParallel ddp(net, group);
    if (group.rank() == 0) {  // alone: would hang or fail otherwise
      ddp.eval();
      ddp(row(5)).sum().backward();
      expect_weight_gradient(net, 5);
      net->zero_grad();
      ddp.train();
      const torch::NoGradGuard no_grad;
      EXPECT_FALSE(ddp(row(5)).requires_grad());
    }
    barrier(group).wait();
    ddp(row(group.rank() + 1)).sum().backward();
    expect_weight_gradient(net, average_of_inputs(group));
  });
}

TEST(DataParallel, LeavesFrozenParametersAlone) {
  on_ranks(2, [](const Group& group) {
    const auto net = std::make_shared<Unused>();
    net->spare->weight.set_requires_grad(false);
    net->spare->bias.set_requires_grad(false);
    DistributedDataParallel ddp(net, group);
    ddp(row(group.rank() + 1), false).sum().backward();
    expect_weight_gradient(net->used, average_of_inputs(group));
    EXPECT_FALSE(net->spare->weight.grad().defined());
  });
}

TEST(DataParallel, TakesAParameterWithTwoNamesOnce) {
  on_ranks(2, [](const Group& group) {
    auto shared = ones(3, 3);
    Sequential net(shared, shared);
    DistributedDataParallel ddp(net, group, small_buckets);
    ddp(row(group.rank() + 1)).sum().backward();
    auto plain = ones(3, 3);
    double average = 0;
    for (int rank = 0; rank < group.size(); ++rank) {
      plain->zero_grad();
      plain->forward(plain->forward(row(rank + 1))).sum().backward();
      average += plain->weight.grad()[0][0].item<double>() / group.size();
    }
    expect_weight_gradient(shared, average);
    EXPECT_EQ(group.recorder().steps_since(0).back().buckets, 2U);
  });
}

TEST(DataParallel, ServesSeveralTypesAndLayouts) {
  on_ranks(2, [](const Group& group) {
    auto conv = torch::nn::Conv2d(torch::nn::Conv2dOptions(4, 4, 3));
    conv->weight.set_data(conv->weight.contiguous(torch::MemoryFormat::ChannelsLast));
    auto half = ones(3, 2), wide = ones(3, 2);
    half->to(torch::kBFloat16);
    wide->to(torch::kFloat64);
    struct Net : torch::nn::Module {
      torch::Tensor forward(const std::function<torch::Tensor()>& f) { return f(); }
    };
    const auto net = std::make_shared<Net>();
    net->register_module("conv", conv);
    net->register_module("half", half);
    net->register_module("wide", wide);
    DistributedDataParallel ddp(net, group);
    const double mine = group.rank() + 1;
    ddp([&] {
      return conv(torch::full({1, 4, 3, 3}, mine)).sum() + half(row(mine).to(torch::kBFloat16)).sum() +
             wide(row(mine).to(torch::kFloat64)).sum();
    }).backward();
    EXPECT_TRUE(torch::allclose(conv->weight.grad(), torch::full_like(conv->weight, 1.5)));
    EXPECT_EQ(conv->weight.grad().strides(), conv->weight.strides());
    expect_weight_gradient(half, 1.5);
    expect_weight_gradient(wide, 1.5);
  });
}

TEST(DataParallel, LeavesOneEventInTheRecordForEachStep) {
  on_ranks(2, [](const Group& group) {
    Sequential net(Linear(8, 8), Linear(8, 8), Linear(8, 8), Linear(8, 8));
    DistributedDataParallel ddp(net, group, small_buckets);
    const auto position = group.recorder().steps();
    for (int step = 0; step < 3; ++step) ddp(torch::ones({2, 8})).sum().backward();
    const auto steps = group.recorder().steps_since(position);
    ASSERT_EQ(steps.size(), 3U);
    for (std::uint64_t i = 0; i < steps.size(); ++i) {
      const auto& step = steps[i];
      EXPECT_EQ(step.step, i);
      EXPECT_EQ(step.buckets, 8U);
      EXPECT_LT(step.buckets_complete_at_last_gradient, 8U);
      EXPECT_LT(step.begin_ns, step.last_gradient_ns);
      EXPECT_LT(step.last_gradient_ns, step.end_ns);
      EXPECT_GT(step.exposed_work_ns, 0U);
      EXPECT_LE(step.exposed_work_ns + step.exposed_wait_ns, step.end_ns - step.begin_ns);
      EXPECT_GE(step.gradient_bytes, 4 * (64 + 8) * 4U);
    }
  });
}

TEST(DataParallel, IsTheModelAndNothingElseAlone) {
  auto net = ones(3, 2);
  const Group alone;
  DistributedDataParallel ddp(net, alone);
  ddp(row(2)).sum().backward();
  expect_weight_gradient(net, 2);
  EXPECT_EQ(alone.recorder().steps(), 0U);
}

}  // namespace
}  // namespace lockstep
