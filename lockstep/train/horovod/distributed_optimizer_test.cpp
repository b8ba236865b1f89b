#include "lockstep/train/horovod/distributed_optimizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "lockstep/base/failure_test.h"
#include "lockstep/group/collectives.h"
#include "lockstep/trace/recorder.h"
#include "lockstep/train/data_parallel/data_parallel_test.h"
#include "lockstep/train/horovod/gradient_tape.h"
#include "lockstep/train/replicas/broadcast_state.h"
#include "lockstep/train/tensor/ranks_test.h"

namespace lockstep {
namespace {

using namespace test;
using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(DistributedOptimizer, StepsWithTheAverage) {
  on_ranks(3, [](const Group& group) {
    auto net = ones(3, 2);
    torch::optim::SGD sgd(net->parameters(), 0.5);
    DistributedOptimizer optimizer(sgd, *net, group);
    for (int step = 1; step <= 3; ++step) {
      optimizer.zero_grad();
      net->forward(row(group.rank() + 1)).sum().backward();
      expect_weight_gradient(net, average_of_inputs(group));
      optimizer.step();
      EXPECT_TRUE(
          torch::allclose(net->weight, torch::full({2, 3}, 1 - step * 0.5 * average_of_inputs(group))));
    }
  });
}

TEST(DistributedOptimizer, AddsUpWhereItIsAskedFor) {
  on_ranks(3, [](const Group& group) {
    auto net = ones(3, 2);
    torch::optim::SGD sgd(net->parameters(), 1);
    DistributedOptimizer optimizer(sgd, *net, group, {.op = GradientOp::sum});
    net->forward(row(group.rank() + 1)).sum().backward();
    expect_weight_gradient(net, 6);
  });
}

TEST(DistributedOptimizer, AveragesOnceForSeveralPasses) {
  on_ranks(2, [](const Group& group) {
    auto net = ones(3, 2);
    torch::optim::SGD sgd(net->parameters(), 1);
    DistributedOptimizer optimizer(sgd, *net, group, {.backward_passes_per_step = 3});
    const auto before = group.recorder().steps();
    for (int step = 1; step <= 2; ++step) {
      optimizer.zero_grad();
      for (int pass = 0; pass < 3; ++pass) {
        if (pass > 0) expect_weight_gradient(net, pass * (group.rank() + 1));
        net->forward(row(group.rank() + 1)).sum().backward();
      }
      expect_weight_gradient(net, 3 * average_of_inputs(group));
      optimizer.step();
      EXPECT_EQ(group.recorder().steps() - before, static_cast<std::uint64_t>(step));
    }
  });
}

TEST(DistributedOptimizer, AveragesWhatThereIsWhereAStepComesEarly) {
  on_ranks(2, [](const Group& group) {
    auto net = ones(3, 2);
    torch::optim::SGD sgd(net->parameters(), 1);
    DistributedOptimizer optimizer(sgd, *net, group, {.backward_passes_per_step = 3});
    for (int step = 1; step <= 2; ++step) {
      optimizer.zero_grad();
      net->forward(row(group.rank() + 1)).sum().backward();
      optimizer.synchronize();
      optimizer.synchronize();  // is done already
      expect_weight_gradient(net, average_of_inputs(group));
      optimizer.step();
      EXPECT_TRUE(torch::allclose(net->weight, torch::full({2, 3}, 1 - step * average_of_inputs(group))));
    }
  });
}

TEST(DistributedOptimizer, CountsMissingGradientsAsZeroAndLeavesUnusedParametersAlone) {
  on_ranks(2, [](const Group& group) {
    Unused net;
    torch::nn::Linear never = net.register_module("never", ones(3, 2));
    torch::optim::SGD sgd(net.parameters(), 1);
    DistributedOptimizer optimizer(sgd, net, group);
    net.forward(row(1), group.rank() == 1).sum().backward();
    expect_weight_gradient(net.used, 1);
    expect_weight_gradient(net.spare, 0.5);
    EXPECT_FALSE(never->weight.grad().defined());
    optimizer.step();
    EXPECT_TRUE(torch::allclose(net.spare->weight, torch::full({2, 3}, 0.5)));
  });
}

TEST(DistributedOptimizer, ServesOptimizersThatAskForTheLossThemselves) {
  on_ranks(2, [](const Group& group) {
    auto net = ones(3, 1);
    torch::optim::LBFGS lbfgs(net->parameters(), torch::optim::LBFGSOptions(0.1).max_iter(3));
    DistributedOptimizer optimizer(lbfgs, *net, group);
    for (int step = 0; step < 2; ++step) {
      optimizer.step([&] {
        optimizer.zero_grad();
        auto loss = (net->forward(row(group.rank() + 1)) - 1).pow(2).sum();
        loss.backward();
        return loss;
      });
    }
    std::vector<float> all(static_cast<std::size_t>(2));
    const std::vector<float> mine = {net->weight.sum().item<float>()};
    all_gather(group, mine, all).wait();
    // The losses differ, so LBFGS may end at different points; what is averaged is the gradient.
    EXPECT_LT(all[0], 3.0F);
    EXPECT_LT(all[1], 3.0F);
  });
}

TEST(DistributedOptimizer, RefusesMoreBackwardsThanWereAnnounced) {
  on_ranks(2, [](const Group& group) {
    auto net = ones(3, 2);
    torch::optim::SGD sgd(net->parameters(), 1);
    DistributedOptimizer optimizer(sgd, *net, group);
    for (int pass = 0; pass < 2; ++pass) net->forward(row(1)).sum().backward();
    EXPECT_THAT(
        failure_of([&] { optimizer.step(); }, ErrorCode::invalid_argument),
        HasSubstr("backward ran 2 times since the last step(), and backward_passes_per_step is 1: the "
                  "gradients of the last ones are not averaged; set it to 2"));
  });
}

TEST(DistributedOptimizer, RefusesWhatCannotBe) {
  const Group alone;
  auto net = ones(3, 2), other = ones(3, 2);
  torch::optim::SGD sgd(net->parameters(), 1);
  const auto fault = [&](const DistributedOptimizerOptions& options) {
    return failure_of([&] { DistributedOptimizer(sgd, *net, alone, options); }, ErrorCode::invalid_argument);
  };
  EXPECT_THAT(fault({.backward_passes_per_step = 0}),
              HasSubstr("backward_passes_per_step is 0; it has to be 1"));
  EXPECT_THAT(fault({.groups = -1}), HasSubstr("groups is -1"));
  EXPECT_THAT(fault({.gradient_predivide_factor = -2}), HasSubstr("the predivide factor is -2"));
  EXPECT_THAT(fault({.op = GradientOp::sum, .gradient_predivide_factor = 2}),
              HasSubstr("gradient_predivide_factor is for GradientOp::average only"));
  EXPECT_THAT(fault({.op = GradientOp::adasum, .compression = Compression::fp16}),
              HasSubstr("compression is for GradientOp::average and sum only"));
  EXPECT_THAT(failure_of([&] { DistributedOptimizer(sgd, *other, alone); }, ErrorCode::invalid_argument),
              HasSubstr("2 of the optimizer's parameters are not the module's"));
}

TEST(DistributedOptimizer, NamesOptionsThatDiffer) {
  on_ranks(2, [](const Group& group) {
    auto net = ones(3, 2);
    torch::optim::SGD sgd(net->parameters(), 1);
    const auto compression = group.rank() == 0 ? Compression::none : Compression::bf16;
    EXPECT_THAT(failure_of([&] { DistributedOptimizer(sgd, *net, group, {.compression = compression}); },
                           ErrorCode::mismatch),
                HasSubstr("rank 1's compression is bf16, rank 0's is none"));
  });
}

TEST(DistributedOptimizer, BringsTheStepsTogetherForAdasum) {
  on_ranks(2, [](const Group& group) {
    auto net = ones(3, 1);
    torch::optim::SGD sgd(net->parameters(), 1);
    DistributedOptimizer optimizer(sgd, *net, group, {.op = GradientOp::adasum});
    // Orthogonal for the weight, so that both steps are taken in full; equal for the bias, so that one is.
    const auto input =
        group.rank() == 0 ? torch::tensor({{1.0F, 0.0F, 0.0F}}) : torch::tensor({{0.0F, 2.0F, 0.0F}});
    net->forward(input).sum().backward();
    optimizer.step();
    EXPECT_TRUE(torch::allclose(net->weight, torch::tensor({{0.0F, -1.0F, 1.0F}}))) << net->weight;
    EXPECT_TRUE(torch::allclose(net->bias, torch::zeros({1}))) << net->bias;
  });
}

/// One rank has such gradients: `policy` says what becomes of the step, and it is the same with closures.
void step_with_one_nan(const Group& group, const DistributedOptimizerOptions& options, bool with_closure) {
  auto net = ones(3, 2);
  torch::optim::SGD sgd(net->parameters(), torch::optim::SGDOptions(1).momentum(0.9));
  DistributedOptimizer optimizer(sgd, *net, group, options);
  const auto step = [&](double input) {
    const auto backward = [&] {
      optimizer.zero_grad();
      auto loss = net->forward(row(input)).sum();
      loss.backward();
      return loss;
    };
    if (with_closure) {
      (void)optimizer.step(backward);
    } else {
      (void)backward();
      optimizer.step();
    }
  };
  const bool is_last = group.rank() + 1 == group.size();
  const auto bad_step = [&] { step(is_last ? NAN : 1); };
  if (options.non_finite == NonFinite::stop) {
    EXPECT_THAT(failure_of(bad_step, ErrorCode::invalid_argument),
                HasSubstr("step 0: the gradient of parameter weight on rank " +
                          std::to_string(group.size() - 1) + " is not finite; no rank took this step"));
    EXPECT_TRUE(torch::equal(net->weight, torch::ones({2, 3}))) << net->weight;
    return;
  }
  bad_step();
  EXPECT_TRUE(torch::equal(net->weight, torch::ones({2, 3}))) << net->weight;
  step(1);
  EXPECT_TRUE(torch::allclose(net->weight, torch::zeros({2, 3}))) << net->weight;
}

TEST(DistributedOptimizer, SkipsOrStopsWhereGradientsAreNotFinite) {
  for (const int ranks : {1, 2}) {
    on_ranks(ranks, [](const Group& group) {
      for (const GradientOp op : {GradientOp::average, GradientOp::adasum})
        for (const NonFinite policy : {NonFinite::skip, NonFinite::stop})
          for (const bool with_closure : {false, true})
            step_with_one_nan(group, {.op = op, .non_finite = policy}, with_closure);
    });
  }
}

TEST(GradientTape, AveragesWhatItTakes) {
  on_ranks(2, [](const Group& group) {
    auto net = ones(3, 2);
    const auto unused = torch::ones({4}, torch::requires_grad());
    auto sources = net->parameters();
    sources.push_back(unused);
    DistributedGradientTape tape(group);
    const auto gradients = tape.gradient(net->forward(row(group.rank() + 1)).sum(), sources);
    ASSERT_EQ(gradients.size(), 3U);
    EXPECT_TRUE(torch::allclose(gradients[0], torch::full({2, 3}, 1.5)));
    EXPECT_TRUE(torch::allclose(gradients[2], torch::zeros({4})));
    EXPECT_FALSE(net->weight.grad().defined());
    DistributedGradientTape sum(group, {.op = GradientOp::sum});
    EXPECT_TRUE(torch::allclose(sum.gradient(net->forward(row(group.rank() + 1)).sum(), sources)[0],
                                torch::full({2, 3}, 3.0)));
    torch::optim::SGD sgd(net->parameters(), 1);
    apply_gradients(sgd, net->parameters(), {gradients[0], gradients[1]});
    EXPECT_TRUE(torch::allclose(net->weight, torch::full({2, 3}, -0.5)));
    EXPECT_THAT(failure_of([&] { apply_gradients(sgd, net->parameters(), {}); }, ErrorCode::invalid_argument),
                HasSubstr("0 gradients for 2 parameters"));
    EXPECT_THAT(failure_of([&] { (void)tape.gradient(unused.sum(), {}); }, ErrorCode::invalid_argument),
                HasSubstr("nothing to take gradients of"));
  });
}

TEST(GradientTape, NamesTheRankWhoseGradientsAreNotFinite) {
  on_ranks(2, [](const Group& group) {
    auto net = ones(3, 2);
    const double input = group.rank() == 1 ? NAN : 1;
    DistributedGradientTape stop(group, {.non_finite = NonFinite::stop});
    (void)stop.gradient(net->forward(row(1)).sum(), net->parameters());
    EXPECT_THAT(failure_of([&] { (void)stop.gradient(net->forward(row(input)).sum(), net->parameters()); },
                           ErrorCode::invalid_argument),
                HasSubstr("step 1: the gradient of parameter #0 on rank 1 is not finite"));
    // Too large for a half, and for the sum of two.
    DistributedGradientTape half(group, {.compression = Compression::fp16, .non_finite = NonFinite::stop});
    EXPECT_THAT(failure_of([&] { (void)half.gradient(net->forward(row(1e6)).sum(), net->parameters()); },
                           ErrorCode::invalid_argument),
                HasSubstr("step 0: the ranks' gradients are finite, but not their sum"));
    DistributedGradientTape skip(group, {.non_finite = NonFinite::skip});
    torch::optim::SGD sgd(net->parameters(), 1);
    apply_gradients(sgd, net->parameters(), skip.gradient(net->forward(row(input)).sum(), net->parameters()));
    EXPECT_TRUE(torch::equal(net->weight, torch::ones({2, 3}))) << net->weight;
  });
}

TEST(BroadcastState, BringsParametersAndBuffersOfTheRoot) {
  on_ranks(3, [](const Group& group) {
    torch::nn::BatchNorm1d net(4);
    {
      const torch::NoGradGuard no_grad;
      for (auto& tensor : net->parameters()) tensor.fill_(group.rank());
      net->running_mean.fill_(group.rank());
    }
    broadcast_parameters(group, net, 2);
    EXPECT_TRUE(torch::equal(net->weight, torch::full({4}, 2.0F)));
    EXPECT_TRUE(torch::equal(net->running_mean, torch::full({4}, 2.0F)));
  });
}

TEST(BroadcastState, BringsAnOptimizersStateWhereOnlyTheRootHasSome) {
  on_ranks(2, [](const Group& group) {
    for (const bool has_state : {true, false}) {
      auto net = ones(3, 2);
      torch::optim::SGD sgd(net->parameters(),
                            torch::optim::SGDOptions(0.1 * (group.rank() + 1)).momentum(0.9));
      if (has_state && group.rank() == 0) {
        net->forward(row(1)).sum().backward();
        sgd.step();
        sgd.zero_grad();
      }
      broadcast_parameters(group, net);
      broadcast_optimizer_state(group, sgd);
      EXPECT_EQ(static_cast<torch::optim::SGDOptions&>(sgd.param_groups()[0].options()).lr(), 0.1);
      EXPECT_EQ(sgd.state().size(), has_state ? 2U : 0U);
      net->forward(row(1)).sum().backward();
      sgd.step();
      // 1 - 0.1, then with momentum 1.9.
      const double expected = has_state ? 1 - 0.1 - 0.19 : 1 - 0.1;
      EXPECT_TRUE(torch::allclose(net->weight, torch::full({2, 3}, expected))) << net->weight;
    }
  });
}

TEST(BroadcastState, RefusesAnOptimizerOfOtherParameters) {
  on_ranks(3, [](const Group& group) {
    auto net = ones(3, 2), second = ones(3, 2);
    auto parameters = net->parameters();
    if (group.rank() == 2) parameters.push_back(second->weight);
    torch::optim::SGD sgd(parameters, 0.1);
    EXPECT_THAT(
        failure_of([&] { broadcast_optimizer_state(group, sgd); }, ErrorCode::invalid_argument),
        AllOf(HasSubstr("on rank 2 what rank 0 sends holds the state of an optimizer of 2 parameters, here "
                        "it has 3")));
  });
}

TEST(BroadcastState, BringsObjects) {
  on_ranks(3, [](const Group& group) {
    c10::impl::GenericDict settings(c10::StringType::get(), c10::AnyType::get());
    settings.insert("epoch", std::int64_t{3});
    settings.insert("weights", torch::full({2}, 7.0F));
    const auto received =
        broadcast_object(group, group.rank() == 1 ? c10::IValue(settings) : c10::IValue(), 1);
    const auto dict = received.toGenericDict();
    EXPECT_EQ(dict.at("epoch").toInt(), 3);
    EXPECT_TRUE(torch::equal(dict.at("weights").toTensor(), torch::full({2}, 7.0F)));

    const auto all = all_gather_object(group, std::string(static_cast<std::size_t>(group.rank()), 'x'));
    ASSERT_EQ(all.size(), 3U);
    EXPECT_EQ(all[0].toStringRef(), "");
    EXPECT_EQ(all[2].toStringRef(), "xx");
  });
}

}  // namespace
}  // namespace lockstep
