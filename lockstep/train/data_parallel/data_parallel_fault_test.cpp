// What is wrong with a model or a backward pass is said by name, on all ranks.
#include <gmock/gmock.h>

#include <latch>

#include "lockstep/group/collectives.h"
#include "lockstep/train/data_parallel/data_parallel_test.h"
#include "lockstep/train/sharded/sharded_optimizer.h"
#include "lockstep/train/tensor/ranks_test.h"

namespace lockstep {
namespace {

using namespace test;
using testing::HasSubstr;
using torch::nn::Linear;
using torch::nn::Sequential;

TEST(DataParallelFault, NamesParametersWithoutAGradientOnEveryRank) {
  for (const auto& limits : {DataParallelOptions{}, small_buckets}) {
    const auto endings = run_ranks(3, [&](const Group& group) {
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

TEST(DataParallelFault, GoesOnAfterAnErrorThatAllRanksHaveSeen) {
  on_ranks(2, [](const Group& group) {
    const auto net = std::make_shared<Unused>();
    DistributedDataParallel ddp(net, group, small_buckets);
    EXPECT_THROW(ddp(row(1), false).sum().backward(), Error);
    net->zero_grad();
    ddp(row(group.rank() + 1), true).sum().backward();
    expect_weight_gradient(net->used, average_of_inputs(group));
    expect_weight_gradient(net->spare, average_of_inputs(group));
  });
}

TEST(DataParallelFault, NoticesThatOneRankAloneHasChangedItsModel) {
  const auto endings = run_ranks(2, [](const Group& group) {
    Linear net(3, 2);
    DistributedDataParallel ddp(net, group);
    if (group.rank() == 1) net->bias.set_requires_grad(false);
    ddp(row(1)).sum().backward();
  });
  for (const auto& ending : endings) EXPECT_EQ(ending.code, ErrorCode::mismatch) << ending.text;
  EXPECT_THAT(endings[0].text, HasSubstr("rank 1"));
}

TEST(DataParallelFault, SaysInWhichBackwardARankWasMissing) {
  const auto endings = run_ranks(2, [](const Group& group) {
    Linear net(3, 2);
    DistributedDataParallel ddp(net, group, {.broadcast_buffers = false});
    for (int step = 0; step < 3 - group.rank(); ++step) ddp(row(1)).sum().backward();
    if (group.rank() == 1) barrier(group).wait();
  });
  EXPECT_EQ(endings[0].code, ErrorCode::mismatch);
  EXPECT_THAT(endings[0].text,
              HasSubstr("(in backward 2 of a wrapped model; ranks take the same steps and branches, "
                        "and have as many batches, or join())"));
}

TEST(DataParallelFault, NamesWhatDiffersAfterAllRanksHaveChangedTheirModels) {
  const auto endings = run_ranks(2, [](const Group& group) {
    Linear net(3, 2);
    DistributedDataParallel ddp(net, group);
    (group.rank() == 1 ? net->bias : net->weight).set_requires_grad(false);
    ddp(row(1)).sum().backward();
  });
  for (const auto& ending : endings) {
    EXPECT_THAT(ending.text,
                HasSubstr("rank 1's parameter weight is f32 [2, 3], rank 0's is f32 [2, 3] (frozen)"));
  }
}

TEST(DataParallelFault, RefusesModelsThatDiffer) {
  const auto endings = run_ranks(2, [](const Group& group) {
    DistributedDataParallel ddp(Linear(group.rank() == 0 ? 64 : 32, 10), group);
  });
  for (const auto& ending : endings) {
    EXPECT_EQ(ending.code, ErrorCode::mismatch);
    EXPECT_THAT(ending.text,
                HasSubstr("rank 1's parameter weight is f32 [10, 32], rank 0's is f32 [10, 64]"));
  }
}

TEST(DataParallelFault, RefusesAnotherWrapperOnAnotherRank) {
  const auto endings = run_ranks(2, [](const Group& group) {
    Linear net(4, 4);
    if (group.rank() == 0) {
      DistributedDataParallel ddp(net, group);
    } else {
      ShardedOptimizer<torch::optim::SGD> optimizer(*net, group, torch::optim::SGDOptions(0.1));
    }
  });
  for (const auto& ending : endings) {
    EXPECT_EQ(ending.code, ErrorCode::mismatch);
    EXPECT_THAT(ending.text,
                HasSubstr("rank 1's wrapper is ShardedOptimizer, rank 0's is DistributedDataParallel"));
  }
}

TEST(DataParallelFault, RefusesParametersWhoseElementsAreOneInMemory) {
  struct Net : torch::nn::Module {
    Net() { register_parameter("scale", torch::ones({1}).expand({4}).detach()); }
    torch::Tensor forward(const torch::Tensor& x) { return x; }
  };
  for (const int ranks : {1, 2}) {
    const auto endings = run_ranks(
        ranks, [](const Group& group) { DistributedDataParallel ddp(std::make_shared<Net>(), group); });
    for (const auto& ending : endings) {
      EXPECT_EQ(ending.code, ErrorCode::unsupported);
      EXPECT_THAT(ending.text, HasSubstr("parameter scale is f32 [4], elements of which are one in memory"));
      EXPECT_THAT(ending.text, HasSubstr("register its .clone()"));
    }
  }
}

TEST(DataParallelFault, RefusesOptionsThatDiffer) {
  const auto endings = run_ranks(2, [](const Group& group) {
    DistributedDataParallel ddp(Linear(4, 4), group, {.bucket_cap_bytes = group.rank() == 0 ? 1000U : 2000U});
  });
  EXPECT_THAT(endings[0].text, HasSubstr("rank 1's option bucket_cap_bytes is 2000, rank 0's is 1000"));
}

TEST(DataParallelFault, RefusesWhatHasNoElements) {
  for (const int ranks : {1, 2}) {
    const auto endings = run_ranks(ranks, [](const Group& group) {
      struct Net : torch::nn::Module {
        Net() { register_parameter("weight", torch::empty({2, 3}, torch::kMeta)); }
        torch::Tensor forward(const torch::Tensor& x) { return x; }
      };
      DistributedDataParallel ddp(std::make_shared<Net>(), group);
    });
    for (const auto& ending : endings) {
      EXPECT_EQ(ending.code, ErrorCode::unsupported);
      EXPECT_THAT(ending.text,
                  HasSubstr("parameter weight is f32 [2, 3] on meta, which has a shape and no elements"));
    }
  }
}

TEST(DataParallelFault, RefusesSparseGradientsThatNoEmbeddingHasAnnounced) {
  struct Lookup : torch::nn::Module {
    Lookup() { register_parameter("weight", weight); }
    torch::Tensor forward(const torch::Tensor& x) { return torch::embedding(weight, x, -1, false, true); }
    torch::Tensor weight = torch::ones({10, 4}).requires_grad_();
  };
  const auto endings = run_ranks(2, [](const Group& group) {
    DistributedDataParallel ddp(std::make_shared<Lookup>(), group);
    ddp(torch::tensor({1, 2})).sum().backward();
  });
  EXPECT_THAT(
      endings[0].text + endings[1].text,
      HasSubstr("the gradient of parameter weight is f32 [10, 4] (Sparse); only Embedding and EmbeddingBag"));
}

TEST(DataParallelFault, RefusesToWrapAModelTwice) {
  const auto endings = run_ranks(2, [](const Group& group) {
    Linear net(3, 2);
    DistributedDataParallel ddp(net, group);
    DistributedDataParallel again(net, group);
  });
  EXPECT_THAT(endings[0].text, HasSubstr("parameter weight is in a DistributedDataParallel already"));
}

TEST(DataParallelFault, LetsTheOthersKnowWhenABackwardFailsHalfWay) {
  const auto endings = run_ranks(3, [](const Group& group) {
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
    const auto& ending = endings[static_cast<std::size_t>(other)];
    EXPECT_EQ(ending.peer, 1);
    EXPECT_THAT(ending.text,
                HasSubstr("rank 1 gave up: an exception ended backward 0 of a wrapped model early"));
  }
}

TEST(DataParallelFault, LetsTheOthersKnowAtOnceAlsoIfTheExceptionIsCaught) {
  std::latch others(1);
  const auto endings = run_ranks(2, [&](const Group& group) {
    Sequential net(ones(3, 3), ones(3, 3));
    DistributedDataParallel ddp(net, group);  // one bucket: nothing is under way yet when it happens
    if (group.rank() == 0) {
      const std::unique_ptr<std::latch, void (*)(std::latch*)> at_the_end(&others,
                                                                          [](auto* l) { l->count_down(); });
      ddp(row(1)).sum().backward();
      return;
    }
    net[0]->as<torch::nn::Linear>()->weight.register_hook([](const torch::Tensor& gradient) -> torch::Tensor {
      throw std::runtime_error("out of luck");
      return gradient;
    });
    EXPECT_THROW(ddp(row(1)).sum().backward(), std::runtime_error);
    others.wait();
    EXPECT_THROW(barrier(group).wait(), Error);  // the group is closed
  });
  EXPECT_TRUE(endings[1].ok) << endings[1].text;
  EXPECT_EQ(endings[0].peer, 1);
  EXPECT_THAT(endings[0].text,
              HasSubstr("rank 1 gave up: an exception ended backward 0 of a wrapped model early"));
}

}  // namespace
}  // namespace lockstep
