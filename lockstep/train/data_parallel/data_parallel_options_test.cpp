// Graphs that change, gradients that add up, sparse ones, buffers, models that change after wrapping.
#include <gmock/gmock.h>

#include <limits>

#include "lockstep/base/failure_test.h"
#include "lockstep/trace/recorder.h"
#include "lockstep/train/data_parallel/data_parallel_test.h"
#include "lockstep/train/tensor/ranks_test.h"

namespace lockstep {
namespace {

using namespace test;
using testing::HasSubstr;
using torch::nn::Linear;
using torch::nn::Sequential;

DataParallelOptions small_buckets_with(bool DataParallelOptions::*option) {
  DataParallelOptions options = small_buckets;
  options.*option = true;
  return options;
}

const DataParallelOptions find_unused = small_buckets_with(&DataParallelOptions::find_unused_parameters);
const DataParallelOptions static_graph = small_buckets_with(&DataParallelOptions::static_graph);

TEST(FindUnusedParameters, AveragesWhatSomeRanksHaveWithZeros) {
  on_ranks(3, [](const Group& group) {
    const auto net = std::make_shared<Unused>();
    DistributedDataParallel ddp(net, group, find_unused);
    for (int step = 0; step < 3; ++step) {
      net->zero_grad(step % 2 == 0);
      ddp(row(group.rank() + 1), group.rank() == step).sum().backward();
      expect_weight_gradient(net->used, 2);
      expect_weight_gradient(net->spare, (step + 1) / 3.0);
    }
  });
}

TEST(FindUnusedParameters, LeavesAloneWhatNoRankUses) {
  on_ranks(2, [](const Group& group) {
    const auto net = std::make_shared<Unused>();
    DistributedDataParallel ddp(net, group, find_unused);
    ddp(row(1), false).sum().backward();
    EXPECT_FALSE(net->spare->weight.grad().defined());
    net->spare->weight.mutable_grad() = torch::full({2, 3}, 5.0 + group.rank());
    net->used->zero_grad();
    ddp(row(1), false).sum().backward();
    expect_weight_gradient(net->spare, 5.0 + group.rank());
    expect_weight_gradient(net->used, 1);
  });
}

TEST(FindUnusedParameters, CountsWhatAPassThatWasNotAveragedHasUsed) {
  on_ranks(2, [](const Group& group) {
    const auto net = std::make_shared<Unused>();
    DistributedDataParallel ddp(net, group, find_unused);
    {
      const auto alone = ddp.no_sync();
      ddp(row(group.rank() + 1), true).sum().backward();
    }
    ddp(row(group.rank() + 1), false).sum().backward();
    expect_weight_gradient(net->used, 3);
    expect_weight_gradient(net->spare, 1.5);
  });
}

/// Uses what the input says, so that the loss decides what the graph is.
struct Two : torch::nn::Module {
  Two() {
    register_module("a", a);
    register_module("b", b);
  }
  std::vector<torch::Tensor> forward(const torch::Tensor& x) { return {a(x), b(x)}; }
  Linear a = ones(3, 2), b = ones(3, 2);
};

TEST(FindUnusedParameters, KnowsAnOutputThatTheLossLeavesOut) {
  on_ranks(2, [](const Group& group) {
    const auto net = std::make_shared<Two>();
    DistributedDataParallel ddp(net, group, find_unused);
    ddp(row(group.rank() + 1))[static_cast<std::size_t>(group.rank())].sum().backward();
    expect_weight_gradient(net->a, 0.5);
    expect_weight_gradient(net->b, 1);
  });
}

TEST(StaticGraph, ServesParametersThatGetNoGradient) {
  on_ranks(2, [](const Group& group) {
    const auto net = std::make_shared<Unused>();
    DistributedDataParallel ddp(net, group, static_graph);
    for (int step = 0; step < 3; ++step) {
      net->zero_grad();
      ddp(row(group.rank() + 1), false).sum().backward();
      expect_weight_gradient(net->used, 1.5);
      EXPECT_FALSE(net->spare->weight.grad().defined());
    }
  });
}

TEST(StaticGraph, SendsBucketsWhileBackwardRunsFromTheSecondPassOn) {
  on_ranks(2, [](const Group& group) {
    Sequential net(Linear(64, 64), Linear(64, 64), Linear(64, 64), Linear(64, 64), Linear(64, 64));
    DistributedDataParallel ddp(net, group, static_graph);
    for (int step = 0; step < 4; ++step) ddp(torch::ones({512, 64})).sum().backward();
    const auto steps = group.recorder().steps_since(0);
    EXPECT_EQ(steps[0].buckets_complete_at_last_gradient, 0U);
    EXPECT_GT(steps[3].last_gradient_ns, 0U);
  });
}

TEST(StaticGraph, SaysWhichParameterHasNotWhatItHadAtFirst) {
  const auto text_of = [](bool first, bool later) {
    const auto endings = run_ranks(2, [&](const Group& group) {
      const auto net = std::make_shared<Unused>();
      DistributedDataParallel ddp(net, group, static_graph);
      ddp(row(1), first).sum().backward();
      ddp(row(1), later).sum().backward();
    });
    return endings[0].text;
  };
  EXPECT_THAT(text_of(true, false), HasSubstr("on rank 0 parameter spare.weight and 1 more; on rank 1"));
  EXPECT_THAT(text_of(false, true),
              HasSubstr("got more gradients in this backward pass than in the first (0)"));
}

TEST(NoSync, AddsUpWithoutTheOthersAndAveragesTheSum) {
  on_ranks(2, [](const Group& group) {
    auto net = ones(3, 2);
    DistributedDataParallel ddp(net, group);
    for (int round = 0; round < 2; ++round) {
      net->zero_grad(round == 0);
      {
        const auto alone = ddp.no_sync();
        const auto more = ddp.no_sync();  // may nest
        const auto before = group.recorder().steps();
        // As often as each rank likes.
        for (int i = 0; i <= group.rank(); ++i) ddp(row(group.rank() + 1)).sum().backward();
        EXPECT_EQ(group.recorder().steps(), before);
        expect_weight_gradient(net, group.rank() == 0 ? 1 : 4);
      }
      ddp(row(10)).sum().backward();
      expect_weight_gradient(net, 12.5);
    }
  });
}

TEST(SparseGradients, BecomeTheAverageOfAllRanksRows) {
  on_ranks(3, [](const Group& group) {
    torch::nn::Embedding table(torch::nn::EmbeddingOptions(6, 2).sparse(true));
    auto dense = ones(2, 1);
    Sequential net(table, dense);
    DistributedDataParallel ddp(net, group, small_buckets);
    for (int step = 0; step < 2; ++step) {
      net->zero_grad();
      // Rank r looks up rows 0 and r; rank 0 row 0 twice.
      ddp(torch::tensor({0, group.rank()})).sum().backward();
      const auto gradient = table->weight.grad();
      ASSERT_TRUE(gradient.is_sparse());
      auto expected = torch::zeros({6, 2});
      for (int rank = 0; rank < 3; ++rank)
        for (const int row : {0, rank}) expected[row] += 1.0 / 3;
      EXPECT_TRUE(torch::allclose(gradient.to_dense(), expected)) << gradient;
      EXPECT_FALSE(dense->weight.grad().is_sparse());
    }
  });
}

TEST(SparseGradients, MayComeFromSomeRanksOnly) {
  struct Net : torch::nn::Module {
    Net() {
      register_module("table", table);
      register_module("dense", dense);
    }
    torch::Tensor forward(const torch::Tensor& x, bool with_table) {
      return with_table ? dense(x) + table(torch::tensor({{1}})) : dense(x);
    }
    torch::nn::EmbeddingBag table{torch::nn::EmbeddingBagOptions(4, 2).sparse(true).mode(torch::kSum)};
    Linear dense = ones(3, 2);
  };
  on_ranks(2, [](const Group& group) {
    const auto net = std::make_shared<Net>();
    DistributedDataParallel ddp(net, group, find_unused);
    ddp(row(1), group.rank() == 1).sum().backward();
    const auto gradient = net->table->weight.grad();
    ASSERT_TRUE(gradient.defined());
    auto expected = torch::zeros({4, 2});
    expected[1] = 0.5;
    EXPECT_TRUE(torch::allclose(gradient.to_dense(), expected));
  });
}

torch::nn::BatchNorm1d make_norm() { return torch::nn::BatchNorm1d(3); }

TEST(BroadcastBuffers, GivesEveryTrainingForwardRank0sStatistics) {
  on_ranks(2, [](const Group& group) {
    for (const bool broadcast : {true, false}) {
      auto norm = make_norm();
      DistributedDataParallel ddp(norm, group, {.broadcast_buffers = broadcast});
      norm->running_mean.fill_(group.rank() + 1);
      const auto input = torch::tensor({{1.0F, 2.0F, 3.0F}, {3.0F, 2.0F, 1.0F}});
      ddp(input).sum().backward();
      // 0.9 of what was there, and 0.1 of the batch's.
      EXPECT_NEAR(norm->running_mean[0].item<double>(), 0.9 * (broadcast ? 1 : group.rank() + 1) + 0.2, 1e-6);
      ddp.eval();
      norm->running_mean.fill_(group.rank() + 7);
      (void)ddp(input);
      EXPECT_EQ(norm->running_mean[0].item<double>(), group.rank() + 7);
    }
  });
}

TEST(BroadcastBuffers, LeavesSeveralForwardsBeforeABackwardAlone) {
  on_ranks(2, [](const Group& group) {
    auto norm = make_norm();
    DistributedDataParallel ddp(norm, group);
    const auto input = torch::randn({4, 3}) + group.rank();
    const auto loss = ddp(input).pow(2).sum() + ddp(input * 2).pow(2).sum();
    loss.backward();
    EXPECT_TRUE(norm->weight.grad().defined());
  });
}

/// Backward comes to `a` first, although it is the first parameter: it is used last.
struct Backwards : torch::nn::Module {
  Backwards() {
    register_module("a", a);
    register_module("b", b);
    register_module("c", c);
  }
  torch::Tensor forward(const torch::Tensor& x) { return a(b(c(x))); }
  Linear a = ones(3, 3), b = ones(3, 3), c = ones(3, 3);
};

/// Which parameters' gradients travelled, in their order.
struct WatchOrder : CommunicationHook {
  std::string name() const override { return "watch"; }
  Work begin(const GradientBucket& bucket) override {
    order.insert(order.end(), bucket.names.begin(), bucket.names.end());
    return bucket.average(bucket.flat);
  }
  void forget() override { ++forgotten; }
  std::vector<std::string> order;
  int forgotten = 0;
};

TEST(Rebucketing, FollowsTheOrderInWhichGradientsBecomeReady) {
  on_ranks(2, [](const Group& group) {
    const auto net = std::make_shared<Backwards>();
    const auto plain = std::make_shared<Backwards>();
    ((plain->forward(row(1)) + plain->forward(row(2))).sum() / 2).backward();
    DataParallelOptions options = small_buckets;
    const auto watch = std::make_shared<WatchOrder>();
    options.communication_hook = watch;
    DistributedDataParallel ddp(net, group, options);
    for (int step = 0; step < 3; ++step) {
      watch->order.clear();
      net->zero_grad(step != 1);  // whichever way gradients lay in the old buckets
      ddp(row(group.rank() + 1)).sum().backward();
      ASSERT_EQ(watch->order.size(), 6U);
      EXPECT_EQ(watch->order.front().substr(0, 1), step == 0 ? "c" : "a") << step;
      for (std::size_t i = 0; i < 6; ++i)
        EXPECT_TRUE(torch::allclose(net->parameters()[i].grad(), plain->parameters()[i].grad()));
    }
    const void* const place = net->a->weight.grad().data_ptr();
    net->zero_grad(false);
    ddp(row(group.rank() + 1)).sum().backward();
    EXPECT_EQ(net->a->weight.grad().data_ptr(), place) << "copied each time";
    EXPECT_EQ(watch->forgotten, 2);  // when wrapped, and after the first pass
  });
}

TEST(ChangedModel, IsFollowed) {
  on_ranks(2, [](const Group& group) {
    const auto net = std::make_shared<Unused>();
    net->spare->weight.set_requires_grad(false);
    net->spare->bias.set_requires_grad(false);
    DistributedDataParallel ddp(net, group);
    const auto step = [&](torch::ScalarType type, bool with_spare) {
      net->zero_grad();
      ddp(row(group.rank() + 1).to(type), with_spare).sum().backward();
      expect_weight_gradient(net->used, 1.5);
    };
    step(torch::kFloat32, false);
    for (auto& parameter : net->spare->parameters()) parameter.set_requires_grad(true);
    step(torch::kFloat32, true);
    expect_weight_gradient(net->spare, 1.5);
    net->to(torch::kFloat64);
    step(torch::kFloat64, true);
    EXPECT_EQ(net->spare->weight.grad().scalar_type(), torch::kFloat64);
    for (auto& parameter : net->spare->parameters()) parameter.set_requires_grad(false);
    step(torch::kFloat64, false);
    EXPECT_FALSE(net->spare->weight.grad().defined());
  });
}

TEST(PassThrough, SavesAndLoadsUnderTheModulesNames) {
  on_ranks(2, [](const Group& group) {
    auto net = ones(3, 2);
    DistributedDataParallel ddp(net, group);
    EXPECT_EQ(ddp.named_parameters()[0].key(), "weight");
    EXPECT_EQ(ddp.parameters().size(), 2U);
    EXPECT_TRUE(ddp.buffers().empty());
    std::stringstream file;
    torch::serialize::OutputArchive out;
    ddp.save(out);
    out.save_to(file);
    Linear plain(3, 2);
    torch::load(plain, file);
    EXPECT_TRUE(torch::equal(plain->weight, net->weight));
  });
}

torch::serialize::InputArchive archive_of(const Linear& net) {
  std::stringstream file;
  torch::save(net, file);
  torch::serialize::InputArchive archive;
  archive.load_from(file);
  return archive;
}

TEST(PassThrough, LoadsNothingOfAnotherModel) {
  on_ranks(2, [](const Group& group) {
    auto net = ones(3, 2);
    DistributedDataParallel ddp(net, group);
    auto wider = archive_of(Linear(5, 2));
    EXPECT_THAT(test::failure_of([&] { ddp.load(wider); }, ErrorCode::invalid_argument),
                testing::HasSubstr("parameter weight is f32 [2, 3], and f32 [2, 5] in the archive"));
    auto without_bias = archive_of(Linear(torch::nn::LinearOptions(3, 2).bias(false)));
    EXPECT_THROW(ddp.load(without_bias), c10::Error);
    EXPECT_TRUE(torch::equal(net->weight, torch::ones({2, 3})));
    EXPECT_TRUE(torch::equal(net->bias, torch::ones({2})));
    ddp(row(1)).sum().backward();
    EXPECT_TRUE(net->weight.grad().defined()) << "and the model is as it was";
  });
}

DataParallelOptions with(NonFinite policy) {
  DataParallelOptions options = small_buckets;
  options.non_finite = policy;
  return options;
}

constexpr double infinity = std::numeric_limits<double>::infinity();

TEST(NonFiniteGradients, LeaveNoRankWithGradientsWhereTheyAreSkipped) {
  on_ranks(2, [](const Group& group) {
    auto net = ones(3, 2);
    DistributedDataParallel ddp(net, group, with(NonFinite::skip));
    for (int step = 0; step < 4; ++step) {
      net->zero_grad(step % 2 == 0);
      ddp(row(step == 1 && group.rank() == 1 ? -infinity : group.rank() + 1)).sum().backward();
      if (step == 1) {
        EXPECT_FALSE(net->weight.grad().defined());
      } else {
        expect_weight_gradient(net, 1.5);
      }
    }
    EXPECT_EQ(ddp.skipped(), 1U);
  });
}

TEST(NonFiniteGradients, AreNamedOnAllRanksWhereTheyStopTheTraining) {
  for (const int ranks : {1, 3}) {
    const auto endings = run_ranks(ranks, [](const Group& group) {
      const auto net = std::make_shared<Unused>();
      DistributedDataParallel ddp(net, group, with(NonFinite::stop));
      ddp(row(1), true).sum().backward();
      (ddp(row(1), true).sum() * (group.rank() + 1 == group.size() ? infinity : 1)).backward();
    });
    for (const auto& ending : endings) {
      EXPECT_EQ(ending.code, ErrorCode::invalid_argument);
      EXPECT_EQ(ending.peer, ranks - 1);
      EXPECT_THAT(ending.text, HasSubstr("step 1: the gradient of parameter used.weight on rank " +
                                         std::to_string(ranks - 1) + " is not finite"));
    }
  }
}

TEST(NonFiniteGradients, AreTakenAsTheyAreOtherwise) {
  on_ranks(2, [](const Group& group) {
    auto net = ones(3, 2);
    DistributedDataParallel ddp(net, group);
    ddp(row(group.rank() == 1 ? infinity : 1)).sum().backward();
    EXPECT_FALSE(net->weight.grad().isfinite().any().item<bool>());
  });
}

TEST(Clipping, IsByTheNormOfTheAverage) {
  on_ranks(2, [](const Group& group) {
    auto net = ones(3, 2);
    DistributedDataParallel ddp(net, group);
    ddp(row(group.rank() + 1)).sum().backward();
    const double norm = torch::nn::utils::clip_grad_norm_(ddp.parameters(), 0.5);
    EXPECT_NEAR(norm, std::sqrt(6 * 1.5 * 1.5 + 2), 1e-5);
    EXPECT_NEAR(net->weight.grad()[0][0].item<double>(), 1.5 * 0.5 / norm, 1e-5);
  });
}

}  // namespace
}  // namespace lockstep
