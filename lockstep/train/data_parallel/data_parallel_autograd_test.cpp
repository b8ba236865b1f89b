// Autograd can do more than loss.backward(): graphs of gradients, several forwards, hooks, recomputation.
#include <gmock/gmock.h>

#include <chrono>
#include <thread>

#include "lockstep/train/data_parallel/data_parallel_test.h"
#include "lockstep/train/tensor/ranks_test.h"
#include "lockstep/train/tensor/tensor_collectives.h"

namespace lockstep {
namespace {

using namespace test;
using testing::HasSubstr;
using torch::nn::Linear;
using torch::nn::Sequential;

TEST(DataParallelAutograd, AveragesWithCreateGraph) {
  on_ranks(2, [](const Group& group) {
    auto net = ones(3, 2);
    DistributedDataParallel ddp(net, group);
    const auto out = ddp(row(group.rank() + 1));
    out.pow(2).sum().backward({}, /*retain_graph=*/true, /*create_graph=*/true);
    const double mine = group.rank() + 1.0;
    const double gradient = 2 * (3 * mine + 1) * mine;
    auto average = torch::tensor({gradient});
    all_reduce(group, average, ReduceOp::average).wait();
    EXPECT_TRUE(net->weight.grad().requires_grad());
    expect_weight_gradient(net, average.item<float>());
    for (auto& p : net->parameters()) p.mutable_grad() = torch::Tensor();  // break the cycle
  });
}

TEST(DataParallelAutograd, EvaluatesBetweenAForwardAndItsBackward) {
  on_ranks(2, [](const Group& group) {
    auto net = ones(3, 2);
    DistributedDataParallel ddp(net, group);
    const auto loss = ddp(row(group.rank() + 1)).sum();
    ddp.eval();
    if (group.rank() == 1) ddp(row(9));
    ddp.train();
    loss.backward();
    expect_weight_gradient(net, average_of_inputs(group));
  });
}

TEST(DataParallelAutograd, AveragesEveryBackwardOfSeveralForwards) {
  on_ranks(2, [](const Group& group) {
    auto net = ones(3, 2);
    DistributedDataParallel ddp(net, group, small_buckets);
    const auto a = ddp(row(group.rank() + 1)).sum(), b = ddp(row(10 * (group.rank() + 1))).sum();
    a.backward();
    expect_weight_gradient(net, average_of_inputs(group));
    net->zero_grad();
    b.backward();
    expect_weight_gradient(net, 10 * average_of_inputs(group));
    net->zero_grad();
    (ddp(row(group.rank() + 1)).sum() + ddp(row(group.rank() + 1)).sum()).backward();  // one backward of two
    expect_weight_gradient(net, 2 * average_of_inputs(group));
  });
}

TEST(DataParallelAutograd, AveragesTwoModelsInOneBackward) {
  on_ranks(2, [](const Group& group) {
    auto encoder = ones(3, 3), head = ones(3, 2);
    DistributedDataParallel encode(encoder, group, small_buckets), decode(head, group, small_buckets);
    for (int step = 0; step < 50; ++step) {
      encoder->zero_grad();
      head->zero_grad();
      const auto loss = decode(encode(row(group.rank() + 1))).sum();
      // Buckets complete at other moments on each rank.
      if (step % 2 == group.rank()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      loss.backward();
      expect_weight_gradient(encoder, 2 * average_of_inputs(group));
      expect_weight_gradient(head, 3 * average_of_inputs(group) + 1);
    }
  });
}

TEST(DataParallelAutograd, FindsTensorsInWhatAModuleReturns) {
  struct Own {
    torch::Tensor inside;
  };
  struct Net : torch::nn::Module {
    Net() { register_module("fc", fc); }
    auto forward(const torch::Tensor& x, std::tuple<int, std::vector<torch::Tensor>>) {
      return std::tuple(1, std::vector{fc(x)});
    }
    auto forward(const torch::Tensor& x, Own) { return Own{fc(x)}; }
    Linear fc = ones(3, 2);
  };
  on_ranks(2, [](const Group& group) {
    const auto net = std::make_shared<Net>();
    DistributedDataParallel ddp(net, group);
    std::get<1>(ddp(row(group.rank() + 1), std::tuple<int, std::vector<torch::Tensor>>()))
        .front()
        .sum()
        .backward();
    expect_weight_gradient(net->fc, average_of_inputs(group));
    net->zero_grad();
    ddp(row(group.rank() + 1), Own()).inside.sum().backward();
    expect_weight_gradient(net->fc, average_of_inputs(group));
  });
}

TEST(DataParallelAutograd, LeavesGradientsOfInputsToTheirRank) {
  on_ranks(2, [](const Group& group) {
    auto net = ones(3, 2);
    DistributedDataParallel ddp(net, group);
    const auto x = row(group.rank() + 1).requires_grad_();
    // A gradient penalty: a gradient with respect to the input first, with a graph, then the
    // backward of all.
    const auto out = ddp(x).pow(2).sum();
    const auto slope = torch::autograd::grad({out}, {x}, {}, true, true).front();
    EXPECT_FALSE(net->weight.grad().defined());
    const auto own = torch::autograd::grad({out}, net->parameters(), {}, true).front();
    EXPECT_FALSE(net->weight.grad().defined());
    const auto before = own.clone();
    (out + slope.pow(2).sum()).backward();
    EXPECT_TRUE(torch::equal(own, before)) << "a gradient that was asked for lies in a bucket";
    auto mine =
        torch::autograd::grad(
            {net->forward(x).pow(2).sum() +
             torch::autograd::grad({net->forward(x).pow(2).sum()}, {x}, {}, true, true).front().pow(2).sum()},
            {net->weight})
            .front()
            .contiguous();
    all_reduce(group, mine, ReduceOp::average).wait();
    EXPECT_TRUE(torch::allclose(net->weight.grad(), mine));
  });
}

TEST(DataParallelAutograd, CountsAParameterThatOnlyTheLossUses) {
  on_ranks(2, [](const Group& group) {
    const auto net = std::make_shared<Unused>();
    DistributedDataParallel ddp(net, group, small_buckets);
    const auto out = ddp(row(group.rank() + 1), false).sum();
    (out + (net->spare->weight.sum() + net->spare->bias.sum()) * (group.rank() + 1)).backward();
    expect_weight_gradient(net->used, average_of_inputs(group));
    expect_weight_gradient(net->spare, average_of_inputs(group));
  });
}

TEST(DataParallelAutograd, KeepsHooksOfTheUsersOwn) {
  on_ranks(2, [](const Group& group) {
    auto net = ones(3, 2);
    int calls = 0;
    struct Count : torch::autograd::PostAccumulateGradHook {
      explicit Count(int& calls) : calls(calls) {}
      void operator()(const torch::Tensor&) override { ++calls; }
      int& calls;
    };
    torch::autograd::impl::set_post_acc_grad_hooks(net->weight, std::make_unique<Count>(calls));
    net->weight.register_hook([](const torch::Tensor& gradient) { return gradient * 3; });
    {
      DistributedDataParallel ddp(net, group);
      net->weight.register_hook([](const torch::Tensor& gradient) { return gradient * 2; });  // after ours
      ddp(row(group.rank() + 1)).sum().backward();
      expect_weight_gradient(net, 6 * average_of_inputs(group));
    }
    EXPECT_EQ(calls, 1);
    net->forward(row(1)).sum().backward();
    EXPECT_EQ(calls, 2);
  });
}

/// y = layer(x), computed again in the backward, as checkpointing does to save memory.
struct Again : torch::autograd::Function<Again> {
  static torch::Tensor forward(torch::autograd::AutogradContext* context, const torch::Tensor& x,
                               const std::shared_ptr<torch::nn::LinearImpl>& layer) {
    context->save_for_backward({x});
    context->saved_data["layer"] = reinterpret_cast<std::int64_t>(layer.get());
    return layer->forward(x);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    const torch::AutoGradMode on(true);
    auto* const layer = reinterpret_cast<torch::nn::LinearImpl*>(context->saved_data["layer"].toInt());
    const auto x = context->get_saved_variables()[0].detach().requires_grad_();
    torch::autograd::backward({layer->forward(x)}, {gradients[0]});
    return {x.grad(), torch::Tensor()};
  }
};

struct Recomputing : torch::nn::Module {
  explicit Recomputing(int times) : times(times) { register_module("layer", layer); }
  torch::Tensor forward(torch::Tensor x) {
    for (int i = 0; i < times; ++i) x = Again::apply(x, layer.ptr());
    return x;
  }
  int times;
  Linear layer = ones(3, 3);
};

TEST(DataParallelAutograd, AveragesWhatIsRecomputedInTheBackward) {
  on_ranks(2, [](const Group& group) {
    const auto net = std::make_shared<Recomputing>(1);
    DistributedDataParallel ddp(net, group);
    ddp(row(group.rank() + 1).requires_grad_()).sum().backward();
    expect_weight_gradient(net->layer, average_of_inputs(group));
  });
}

TEST(DataParallelAutograd, RefusesTheSecondGradientThatAParameterGetsInOneBackward) {
  const auto endings = run_ranks(2, [](const Group& group) {
    DistributedDataParallel ddp(std::make_shared<Recomputing>(2), group);
    ddp(row(1).requires_grad_()).sum().backward();
  });
  EXPECT_THAT(endings[0].text + endings[1].text, HasSubstr("got its gradient twice in one backward pass"));
}

}  // namespace
}  // namespace lockstep
