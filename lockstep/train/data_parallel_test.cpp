#include "lockstep/train/data_parallel.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/group/collectives.h"
#include "lockstep/train/ranks_test.h"
#include "lockstep/train/tensor_collectives.h"

namespace lockstep {
namespace {

using testing::HasSubstr;
using torch::nn::Linear;
using torch::nn::Sequential;

constexpr DataParallelOptions small_buckets{.first_bucket_bytes = 1, .bucket_cap_bytes = 1};

/// Weights of 1, so that the gradient of sum(output) is the input.
Linear ones(std::int64_t inputs, std::int64_t outputs) {
  Linear linear(inputs, outputs);
  const torch::NoGradGuard no_grad;
  for (auto& p : linear->parameters()) p.fill_(1);
  return linear;
}

torch::Tensor row(double value) { return torch::full({1, 3}, value); }

/// The gradient of the weight when rank r's input is full of r + 1.
double average_of_inputs(const Group& group) { return (group.size() + 1) / 2.0; }

void expect_weight_gradient(const Linear& net, double value) {
  ASSERT_TRUE(net->weight.grad().defined());
  EXPECT_TRUE(torch::allclose(net->weight.grad(), torch::full_like(net->weight, value)))
      << net->weight.grad();
}

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
  EXPECT_EQ(test::failures(3,
                           [](const Group& group) {
                             auto net = ones(3, 2);
                             DistributedDataParallel ddp(net, group);
                             ddp(row(group.rank() + 1)).sum().backward();
                             expect_weight_gradient(net, average_of_inputs(group));
                           }),
            "");
}

TEST(DataParallel, StartsWithRank0sParametersAndBuffers) {
  EXPECT_EQ(test::failures(3,
                           [](const Group& group) {
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
                           }),
            "");
}

TEST(DataParallel, AveragesAnewAfterEitherFormOfZeroGrad) {
  EXPECT_EQ(test::failures(2,
                           [](const Group& group) {
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
                           }),
            "");
}

TEST(DataParallel, AddsUpWithoutZeroGrad) {
  EXPECT_EQ(test::failures(2,
                           [](const Group& group) {
                             auto net = ones(3, 2);
                             DistributedDataParallel ddp(net, group, small_buckets);
                             for (int step = 1; step <= 3; ++step) {
                               ddp(row(group.rank() + 1)).sum().backward();
                               expect_weight_gradient(net, step * average_of_inputs(group));
                             }
                           }),
            "");
}

TEST(DataParallel, AddsToAGradientThatWasThereBefore) {
  EXPECT_EQ(test::failures(2,
                           [](const Group& group) {
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
                           }),
            "");
}

TEST(DataParallel, AveragesWhatBackwardsWithoutItHaveAdded) {
  EXPECT_EQ(test::failures(2,
                           [](const Group& group) {
                             auto net = ones(3, 2);
                             DistributedDataParallel ddp(net, group);
                             net->forward(row(group.rank() + 1)).sum().backward();  // this rank's own
                             expect_weight_gradient(net, group.rank() + 1);
                             ddp(row(group.rank() + 1)).sum().backward();
                             expect_weight_gradient(net, 2 * average_of_inputs(group));
                           }),
            "");
}

TEST(DataParallel, AveragesWithCreateGraph) {
  EXPECT_EQ(test::failures(2,
                           [](const Group& group) {
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
                             for (auto& p : net->parameters())
                               p.mutable_grad() = torch::Tensor();  // break the cycle
                           }),
            "");
}

TEST(DataParallel, CopiesGradientsOnceAndLeavesThemInTheirBucket) {
  EXPECT_EQ(test::failures(2,
                           [](const Group& group) {
                             auto net = ones(3, 2);
                             DistributedDataParallel ddp(net, group);
                             ddp(row(1)).sum().backward();
                             const void* const place = net->weight.grad().data_ptr();
                             for (const bool set_to_none : {true, false}) {
                               net->zero_grad(set_to_none);
                               ddp(row(1)).sum().backward();
                               EXPECT_EQ(net->weight.grad().data_ptr(), place);
                             }
                           }),
            "");
}

TEST(DataParallel, KeepsGradientsValidAfterItsEnd) {
  EXPECT_EQ(test::failures(2,
                           [](const Group& group) {
                             auto net = ones(3, 2);
                             const void* place = nullptr;
                             {
                               DistributedDataParallel ddp(net, group);
                               ddp(row(group.rank() + 1)).sum().backward();
                               place = net->weight.grad().data_ptr();
                             }
                             expect_weight_gradient(net, average_of_inputs(group));
                             EXPECT_NE(net->weight.grad().data_ptr(), place);
                             net->zero_grad();
                             net->forward(row(group.rank() + 1)).sum().backward();
                             expect_weight_gradient(net, group.rank() + 1);
                             DistributedDataParallel again(net, group);  // the hooks are gone
                           }),
            "");
}

TEST(DataParallel, CommunicatesInTrainingOnly) {
  EXPECT_EQ(test::failures(2,
                           [](const Group& group) {
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
                           }),
            "");
}

TEST(DataParallel, EvaluatesBetweenAForwardAndItsBackward) {
  EXPECT_EQ(test::failures(2,
                           [](const Group& group) {
                             auto net = ones(3, 2);
                             DistributedDataParallel ddp(net, group);
                             const auto loss = ddp(row(group.rank() + 1)).sum();
                             ddp.eval();
                             if (group.rank() == 1) ddp(row(9));
                             ddp.train();
                             loss.backward();
                             expect_weight_gradient(net, average_of_inputs(group));
                           }),
            "");
}

TEST(DataParallel, AveragesEveryBackwardOfSeveralForwards) {
  EXPECT_EQ(test::failures(2,
                           [](const Group& group) {
                             auto net = ones(3, 2);
                             DistributedDataParallel ddp(net, group, small_buckets);
                             const auto a = ddp(row(group.rank() + 1)).sum(),
                                        b = ddp(row(10 * (group.rank() + 1))).sum();
                             a.backward();
                             expect_weight_gradient(net, average_of_inputs(group));
                             net->zero_grad();
                             b.backward();
                             expect_weight_gradient(net, 10 * average_of_inputs(group));
                             net->zero_grad();
                             (ddp(row(group.rank() + 1)).sum() + ddp(row(group.rank() + 1)).sum())
                                 .backward();  // one backward of two
                             expect_weight_gradient(net, 2 * average_of_inputs(group));
                           }),
            "");
}

struct Unused : torch::nn::Module {
  Unused() {
    register_module("used", used);
    register_module("spare", spare);
  }
  torch::Tensor forward(const torch::Tensor& x, bool with_spare) {
    return with_spare ? used(x) + spare(x) : used(x);
  }
  Linear used = ones(3, 2), spare = ones(3, 2);
};

TEST(DataParallel, NamesParametersWithoutAGradientOnEveryRank) {
  for (const auto& limits : {DataParallelOptions{}, small_buckets}) {
    const auto endings = test::run_ranks(3, [&](const Group& group) {
      DistributedDataParallel ddp(std::make_shared<Unused>(), group, limits);
      ddp(row(1), group.rank() != 1).sum().backward();
    });
    for (const auto& ending : endings) {
      EXPECT_EQ(ending.code, ErrorCode::mismatch);
      EXPECT_EQ(ending.peer, 1);
      EXPECT_THAT(ending.text,
                  HasSubstr("backward #0 left parameters without a gradient: on rank 1 parameter "
                            "spare.weight and 1 more. Every trainable parameter must take part"));
    }
  }
}

TEST(DataParallel, GoesOnAfterAnErrorThatAllRanksHaveSeen) {
  EXPECT_EQ(test::failures(2,
                           [](const Group& group) {
                             const auto net = std::make_shared<Unused>();
                             DistributedDataParallel ddp(net, group, small_buckets);
                             EXPECT_THROW(ddp(row(1), false).sum().backward(), Error);
                             net->zero_grad();
                             ddp(row(group.rank() + 1), true).sum().backward();
                             expect_weight_gradient(net->used, average_of_inputs(group));
                             expect_weight_gradient(net->spare, average_of_inputs(group));
                           }),
            "");
}

TEST(DataParallel, LeavesFrozenParametersAlone) {
  EXPECT_EQ(test::failures(2,
                           [](const Group& group) {
                             const auto net = std::make_shared<Unused>();
                             net->spare->weight.set_requires_grad(false);
                             net->spare->bias.set_requires_grad(false);
                             DistributedDataParallel ddp(net, group);
                             ddp(row(group.rank() + 1), false).sum().backward();
                             expect_weight_gradient(net->used, average_of_inputs(group));
                             EXPECT_FALSE(net->spare->weight.grad().defined());
                           }),
            "");
}

TEST(DataParallel, NoticesThatAParameterIsNoLongerWhatItWas) {
  const auto refused = [](const std::function<void(Unused&)>& change) {
    std::string text;
    EXPECT_EQ(test::failures(2,
                             [&](const Group& group) {
                               const auto net = std::make_shared<Unused>();
                               net->spare->bias.set_requires_grad(false);
                               DistributedDataParallel ddp(net, group);
                               change(*net);
                               try {
                                 ddp(row(1), true);
                                 ADD_FAILURE() << "no error";
                               } catch (const Error& error) {
                                 if (group.rank() == 0) text = error.what();
                               }
                             }),
              "");
    return text;
  };
  EXPECT_THAT(refused([](Unused& net) { net.to(torch::kFloat64); }),
              HasSubstr("used.weight is now f64 [2, 3]"));
  EXPECT_THAT(refused([](Unused& net) { net.used->bias.set_requires_grad(false); }),
              HasSubstr("used.bias is now f32 [2] (frozen)"));
  EXPECT_THAT(refused([](Unused& net) { net.spare->bias.set_requires_grad(true); }),
              HasSubstr("spare.bias is now f32 [2];"));
}

TEST(DataParallel, TakesAParameterWithTwoNamesOnce) {
  EXPECT_EQ(test::failures(2,
                           [](const Group& group) {
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
                           }),
            "");
}

TEST(DataParallel, ServesSeveralTypesAndLayouts) {
  EXPECT_EQ(
      test::failures(2,
                     [](const Group& group) {
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
                         return conv(torch::full({1, 4, 3, 3}, mine)).sum() +
                                half(row(mine).to(torch::kBFloat16)).sum() +
                                wide(row(mine).to(torch::kFloat64)).sum();
                       }).backward();
                       EXPECT_TRUE(torch::allclose(conv->weight.grad(), torch::full_like(conv->weight, 1.5)));
                       EXPECT_EQ(conv->weight.grad().strides(), conv->weight.strides());
                       expect_weight_gradient(half, 1.5);
                       expect_weight_gradient(wide, 1.5);
                     }),
      "");
}

TEST(DataParallel, FindsTensorsInWhatAModuleReturns) {
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
  EXPECT_EQ(
      test::failures(2,
                     [](const Group& group) {
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
                     }),
      "");
}

TEST(DataParallel, LeavesGradientsOfInputsToTheirRank) {
  EXPECT_EQ(test::failures(
                2,
                [](const Group& group) {
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
                  auto mine = torch::autograd::grad(
                                  {net->forward(x).pow(2).sum() +
                                   torch::autograd::grad({net->forward(x).pow(2).sum()}, {x}, {}, true, true)
                                       .front()
                                       .pow(2)
                                       .sum()},
                                  {net->weight})
                                  .front()
                                  .contiguous();
                  all_reduce(group, mine, ReduceOp::average).wait();
                  EXPECT_TRUE(torch::allclose(net->weight.grad(), mine));
                }),
            "");
}

TEST(DataParallel, CountsAParameterThatOnlyTheLossUses) {
  EXPECT_EQ(test::failures(
                2,
                [](const Group& group) {
                  const auto net = std::make_shared<Unused>();
                  DistributedDataParallel ddp(net, group, small_buckets);
                  const auto out = ddp(row(group.rank() + 1), false).sum();
                  (out + (net->spare->weight.sum() + net->spare->bias.sum()) * (group.rank() + 1)).backward();
                  expect_weight_gradient(net->used, average_of_inputs(group));
                  expect_weight_gradient(net->spare, average_of_inputs(group));
                }),
            "");
}

TEST(DataParallel, RefusesModelsThatDiffer) {
  const auto endings = test::run_ranks(2, [](const Group& group) {
    DistributedDataParallel ddp(Linear(group.rank() == 0 ? 64 : 32, 10), group);
  });
  for (const auto& ending : endings) {
    EXPECT_EQ(ending.code, ErrorCode::mismatch);
    EXPECT_THAT(ending.text,
                HasSubstr("rank 1's parameter weight is f32 [10, 32], rank 0's is f32 [10, 64]"));
  }
}

TEST(DataParallel, RefusesOptionsThatDiffer) {
  const auto endings = test::run_ranks(2, [](const Group& group) {
    DistributedDataParallel ddp(Linear(4, 4), group, {.bucket_cap_bytes = group.rank() == 0 ? 1000U : 2000U});
  });
  EXPECT_THAT(endings[0].text, HasSubstr("rank 1's option bucket_cap_bytes is 2000, rank 0's is 1000"));
}

TEST(DataParallel, RefusesWhatIsNotInMainMemory) {
  for (const int ranks : {1, 2}) {
    const auto endings = test::run_ranks(ranks, [](const Group& group) {
      struct Net : torch::nn::Module {
        Net() { register_parameter("weight", torch::empty({2, 3}, torch::kMeta)); }
        torch::Tensor forward(const torch::Tensor& x) { return x; }
      };
      DistributedDataParallel ddp(std::make_shared<Net>(), group);
    });
    for (const auto& ending : endings) {
      EXPECT_EQ(ending.code, ErrorCode::unsupported);
      EXPECT_THAT(
          ending.text,
          HasSubstr("parameter weight is f32 [2, 3] on meta; this build of Lockstep was made without CUDA"));
    }
  }
}

TEST(DataParallel, RefusesSparseGradientsByName) {
  const auto endings = test::run_ranks(2, [](const Group& group) {
    torch::nn::Embedding net(torch::nn::EmbeddingOptions(10, 4).sparse(true));
    DistributedDataParallel ddp(net, group);
    ddp(torch::tensor({1, 2})).sum().backward();
  });
  EXPECT_THAT(endings[0].text + endings[1].text,
              HasSubstr("the gradient of parameter weight is f32 [10, 4] (Sparse)"));
}

TEST(DataParallel, RefusesToWrapAModelTwice) {
  const auto endings = test::run_ranks(2, [](const Group& group) {
    Linear net(3, 2);
    DistributedDataParallel ddp(net, group);
    DistributedDataParallel again(net, group);
  });
  EXPECT_THAT(endings[0].text, HasSubstr("parameter weight is in a DistributedDataParallel already"));
}

TEST(DataParallel, KeepsHooksOfTheUsersOwn) {
  EXPECT_EQ(test::failures(
                2,
                [](const Group& group) {
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
                    net->weight.register_hook(
                        [](const torch::Tensor& gradient) { return gradient * 2; });  // after ours
                    ddp(row(group.rank() + 1)).sum().backward();
                    expect_weight_gradient(net, 6 * average_of_inputs(group));
                  }
                  EXPECT_EQ(calls, 1);
                  net->forward(row(1)).sum().backward();
                  EXPECT_EQ(calls, 2);
                }),
            "");
}

TEST(DataParallel, LetsTheOthersKnowWhenABackwardFailsHalfWay) {
  const auto endings = test::run_ranks(3, [](const Group& group) {
    Sequential net(ones(3, 3), ones(3, 3), ones(3, 3));
    DistributedDataParallel ddp(net, group, small_buckets);
    if (group.rank() == 1) {
      net[0]->as<Linear>()->weight.register_hook([](const torch::Tensor& gradient) -> torch::Tensor {
        throw std::runtime_error("out of luck");
        return gradient;
      });
    }
    ddp(row(1)).sum().backward();
    ADD_FAILURE() << "no error";
  });
  EXPECT_EQ(endings[1].text, "out of luck");
  for (const int other : {0, 2}) {
    EXPECT_EQ(endings[static_cast<std::size_t>(other)].peer, 1)
        << endings[static_cast<std::size_t>(other)].text;
  }
}

TEST(DataParallel, LeavesOneEventInTheRecordForEachStep) {
  EXPECT_EQ(test::failures(2,
                           [](const Group& group) {
                             Sequential net(Linear(8, 8), Linear(8, 8), Linear(8, 8), Linear(8, 8));
                             DistributedDataParallel ddp(net, group, small_buckets);
                             const auto position = group.recorder().position();
                             for (int step = 0; step < 3; ++step) ddp(torch::ones({2, 8})).sum().backward();
                             std::vector<trace::TrainingStepEvent> steps;
                             for (const auto& event : group.recorder().since(position)) {
                               if (event.kind == trace::EventKind::training_step)
                                 steps.push_back(event.training_step);
                             }
                             ASSERT_EQ(steps.size(), 3U);
                             for (std::uint64_t i = 0; i < steps.size(); ++i) {
                               const auto& step = steps[i];
                               EXPECT_EQ(step.step, i);
                               EXPECT_EQ(step.buckets, 8U);
                               EXPECT_LT(step.buckets_complete_at_last_gradient, 8U);
                               EXPECT_LT(step.begin_ns, step.last_gradient_ns);
                               EXPECT_LT(step.last_gradient_ns, step.end_ns);
                               EXPECT_GT(step.exposed_work_ns, 0U);
                               EXPECT_LE(step.exposed_work_ns + step.exposed_wait_ns,
                                         step.end_ns - step.begin_ns);
                               EXPECT_GE(step.gradient_bytes, 4 * (64 + 8) * 4U);
                             }
                           }),
            "");
}

TEST(DataParallel, IsTheModelAndNothingElseAlone) {
  auto net = ones(3, 2);
  const Group alone;
  DistributedDataParallel ddp(net, alone);
  ddp(row(2)).sum().backward();
  expect_weight_gradient(net, 2);
  EXPECT_EQ(alone.recorder().position(), 0U);
}

}  // namespace
}  // namespace lockstep
