// Ranks whose optimizers do not do the same are found, however a model is trained; and ranks that change them
// alike are not.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/failure_test.h"
#include "lockstep/group/collectives.h"
#include "lockstep/train/data_parallel/data_parallel_test.h"
#include "lockstep/train/horovod/distributed_optimizer.h"
#include "lockstep/train/horovod/gradient_tape.h"
#include "lockstep/train/optimizer/fused_optimizer.h"
#include "lockstep/train/sharded/sharded_optimizer.h"
#include "lockstep/train/tensor/ranks_test.h"
#include "lockstep/train/trainer/trainer.h"

namespace lockstep {
namespace {

using namespace test;
using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;
using torch::optim::Optimizer;
using torch::optim::SGDOptions;
using Parameters = std::vector<torch::Tensor>;

constexpr int drift_steps = 6;

/// What one rank trains with.
struct Recipe {
  std::function<std::unique_ptr<Optimizer>(const Parameters&)> make =
      [](const Parameters& parameters) -> std::unique_ptr<Optimizer> {
    return std::make_unique<torch::optim::SGD>(parameters, SGDOptions(0.1));
  };
  std::function<void(int step, Optimizer&)> before_step = [](int, Optimizer&) {};
};

template <class MadeOptimizer, class Options>
Recipe made_with(const Options& options) {
  return {.make = [options](const Parameters& parameters) -> std::unique_ptr<Optimizer> {
    return std::make_unique<MadeOptimizer>(parameters, options);
  }};
}

void set_rate(Optimizer& optimizer, double rate) {
  for (auto& group : optimizer.param_groups()) group.options().set_lr(rate);
}

torch::Tensor loss_on(const Group& group, const torch::Tensor& output) {
  return (output - group.rank()).pow(2).mean();
}

void train_by_ddp(const Group& group, const Recipe& recipe) {
  auto net = ones(3, 2);
  DistributedDataParallel ddp(net, group);
  const auto optimizer = recipe.make(net->parameters());
  for (int step = 0; step < drift_steps; ++step) {
    recipe.before_step(step, *optimizer);
    optimizer->zero_grad();
    loss_on(group, ddp(row(group.rank() + 1))).backward();
    optimizer->step();
  }
}

void train_by_distributed_optimizer(const Group& group, const Recipe& recipe, GradientOp op) {
  auto net = ones(3, 2);
  const auto plain = recipe.make(net->parameters());
  DistributedOptimizer optimizer(*plain, *net, group, {.op = op});
  for (int step = 0; step < drift_steps; ++step) {
    recipe.before_step(step, *plain);
    optimizer.zero_grad();
    loss_on(group, net->forward(row(group.rank() + 1))).backward();
    optimizer.step();
  }
}

void train_by_tape(const Group& group, const Recipe& recipe) {
  auto net = ones(3, 2);
  const auto parameters = net->parameters();
  const auto optimizer = recipe.make(parameters);
  DistributedGradientTape tape(group);
  for (int step = 0; step < drift_steps; ++step) {
    recipe.before_step(step, *optimizer);
    const auto loss = loss_on(group, net->forward(row(group.rank() + 1)));
    apply_gradients(*optimizer, parameters, tape.gradient(loss, parameters));
  }
}

/// Each step is an epoch, so that it is the Trainer that sees what the wrapper would see later.
void train_by_trainer(const Group& group, const Recipe& recipe) {
  auto net = ones(3, 2);
  DistributedDataParallel ddp(net, group);
  const auto optimizer = recipe.make(net->parameters());
  TrainerOptions options{.epochs = drift_steps, .progress = std::nullopt};
  options.before_epoch = [&](std::uint64_t epoch) {
    recipe.before_step(static_cast<int>(epoch), *optimizer);
  };
  options.loss = [&](const torch::Tensor& output, const torch::Tensor&) { return loss_on(group, output); };
  const std::vector<torch::data::Example<>> batches = {{row(group.rank() + 1), torch::zeros({1})}};
  Trainer(group, ddp, *optimizer, options).fit(batches);
}

struct Wrapper {
  std::string name;
  std::function<void(const Group&, const Recipe&)> train;
  bool sees_optimizer;  ///< or else only what it does
};
void PrintTo(const Wrapper& way, std::ostream* out) { *out << way.name; }

class Drift : public testing::TestWithParam<Wrapper> {
 protected:
  /// What all ranks are told if rank 1 trains by `other`, and the rest by `recipe`.
  static std::string found(const Recipe& recipe, const Recipe& other) {
    const auto endings = run_ranks(
        3, [&](const Group& group) { GetParam().train(group, group.rank() == 1 ? other : recipe); });
    for (const auto& ending : endings) {
      EXPECT_FALSE(ending.ok);
      EXPECT_EQ(ending.code, ErrorCode::mismatch);
      EXPECT_EQ(ending.peer, 1);
      EXPECT_EQ(ending.text, endings[0].text);
    }
    return endings[0].text;
  }

  /// `text` says that, or what comes of it.
  static void expect_named(const std::string& text, const std::string& difference) {
    if (GetParam().sees_optimizer) {
      EXPECT_THAT(text, HasSubstr(difference));
    } else {
      EXPECT_THAT(text,
                  ContainsRegex("has drifted apart: after [0-9]+ averaged backwards its element [0-9] is "
                                "[-0-9.e]+ on rank 0 and [-0-9.e]+ on rank 1"));
    }
  }
};

INSTANTIATE_TEST_SUITE_P(Of, Drift,
                         testing::Values(Wrapper{"DistributedDataParallel", train_by_ddp, false},
                                         Wrapper{"DistributedOptimizer",
                                                 [](const Group& group, const Recipe& recipe) {
                                                   train_by_distributed_optimizer(group, recipe,
                                                                                  GradientOp::average);
                                                 },
                                                 true},
                                         Wrapper{"Adasum",
                                                 [](const Group& group, const Recipe& recipe) {
                                                   train_by_distributed_optimizer(group, recipe,
                                                                                  GradientOp::adasum);
                                                 },
                                                 true},
                                         Wrapper{"DistributedGradientTape", train_by_tape, false},
                                         Wrapper{"Trainer", train_by_trainer, true}),
                         [](const auto& info) { return info.param.name; });

TEST_P(Drift, IsFoundWhereALearningRateDiffersFromTheStart) {
  expect_named(found({}, made_with<torch::optim::SGD>(SGDOptions(0.01))),
               "rank 1's learning rate is 0.01, rank 0's is 0.1");
}

TEST_P(Drift, IsFoundWhereALearningRateIsChangedOnOneRank) {
  Recipe other;
  other.before_step = [](int step, Optimizer& optimizer) {
    if (step == 2) set_rate(optimizer, 0.05);
  };
  expect_named(found({}, other), "rank 1's learning rate is 0.05, rank 0's is 0.1");
}

TEST_P(Drift, IsFoundWhereAnotherOptimizerSteps) {
  expect_named(found({}, made_with<torch::optim::Adam>(torch::optim::AdamOptions(0.1))),
               "rank 1's optimizer is Adam, rank 0's is SGD");
}

TEST_P(Drift, IsFoundWhereAnotherOptionDiffers) {
  expect_named(found({}, made_with<torch::optim::SGD>(SGDOptions(0.1).weight_decay(0.01))),
               "rank 1's weight decay is 0.01, rank 0's is 0");
  expect_named(found(made_with<torch::optim::SGD>(SGDOptions(0.1).momentum(0.9)), {}),
               "rank 1's momentum is 0, rank 0's is 0.9");
}

TEST_P(Drift, IsNoneWhereAllRanksFollowASchedule) {
  Recipe recipe = made_with<torch::optim::AdamW>(torch::optim::AdamWOptions(0.1));
  recipe.before_step = [](int step, Optimizer& optimizer) { set_rate(optimizer, 0.1 / (step + 1)); };
  on_ranks(3, [&](const Group& group) { GetParam().train(group, recipe); });
}

TEST_P(Drift, IsNoneInAGroupOfOne) { GetParam().train(Group(), {}); }

/// Of two ranks, which step with these.
template <class Sharded, class OtherSharded = Sharded, class Options, class Other>
std::string sharded_difference(const Options& options, const Other& other, double later = 0) {
  const auto train = [&](const Group& group, auto& net, auto&& optimizer) {
    for (int step = 0; step < drift_steps; ++step) {
      if (later != 0 && step == 2 && group.rank() == 1) set_rate(optimizer, later);
      optimizer.zero_grad();
      loss_on(group, net->forward(row(1))).backward();
      optimizer.step();
    }
  };
  const auto endings = run_ranks(2, [&](const Group& group) {
    auto net = ones(3, 2);
    if (group.rank() == 0) return train(group, net, Sharded(*net, group, options));
    train(group, net, OtherSharded(*net, group, other));
  });
  EXPECT_EQ(endings[0].code, ErrorCode::mismatch);
  EXPECT_EQ(endings[0].peer, 1);
  return endings[0].text;
}

using ShardedSgd = ShardedOptimizer<torch::optim::SGD>;
using ShardedAdam = ShardedOptimizer<torch::optim::Adam>;

TEST(ShardedDrift, IsFoundWhereALearningRateOptionOrOptimizerDiffers) {
  EXPECT_THAT(sharded_difference<ShardedSgd>(SGDOptions(0.1), SGDOptions(0.01)),
              HasSubstr("rank 1's learning rate is 0.01, rank 0's is 0.1"));
  EXPECT_THAT(sharded_difference<ShardedSgd>(SGDOptions(0.1), SGDOptions(0.1), 0.05),
              AllOf(HasSubstr("rank 1's learning rate is 0.05, rank 0's is 0.1"), HasSubstr("step 2")));
  EXPECT_THAT(sharded_difference<ShardedSgd>(SGDOptions(0.1), SGDOptions(0.1).weight_decay(0.5)),
              HasSubstr("rank 1's weight decay is 0.5, rank 0's is 0"));
  EXPECT_THAT((sharded_difference<ShardedSgd, ShardedAdam>(SGDOptions(0.1), torch::optim::AdamOptions(0.1))),
              HasSubstr("Adam"));
}

TEST(DriftOfFusedOptimizers, IsFoundToo) {
  const auto endings = run_ranks(2, [](const Group& group) {
    train_by_ddp(group, made_with<FusedSGD>(SGDOptions(group.rank() == 0 ? 0.1 : 0.2)));
  });
  for (const auto& ending : endings)
    EXPECT_THAT(ending.text, HasSubstr("has drifted apart: after 1 averaged"));
}

/// As long as `compare` says.
std::vector<Ending> train_ranks_apart(bool compare) {
  return run_ranks(2, [&](const Group& group) {
    auto net = ones(3, 2);
    DistributedDataParallel ddp(net, group, {.compare_parameters = compare});
    torch::optim::SGD sgd(net->parameters(), 0.1 * (group.rank() + 1));
    for (int step = 0; step < 3; ++step) {
      sgd.zero_grad();
      ddp(row(1)).sum().backward();
      sgd.step();
    }
  });
}

TEST(DriftOfDistributedDataParallel, IsLeftAloneWhereItIsWanted) {
  expect_all_ok(train_ranks_apart(false));
  for (const auto& ending : train_ranks_apart(true)) EXPECT_EQ(ending.code, ErrorCode::mismatch);
}

TEST(DriftOfDistributedDataParallel, LeavesTheGroupAsUsableAsItWas) {
  on_ranks(2, [](const Group& group) {
    auto net = ones(3, 2);
    DistributedDataParallel ddp(net, group);
    const torch::NoGradGuard no_grad;
    for (auto& parameter : net->parameters()) parameter.add_(group.rank());
    const torch::AutoGradMode with_gradients(true);
    EXPECT_THAT(failure_of([&] { ddp(row(1)).sum().backward(); }, ErrorCode::mismatch),
                HasSubstr("is 1 on rank 0 and 2 on rank 1"));
    barrier(group).wait();
    DistributedDataParallel anew(std::make_shared<torch::nn::LinearImpl>(3, 2), group);
    anew(row(1)).sum().backward();
  });
}

TEST(DriftOfDistributedDataParallel, IsNoneOnRanksWithoutInputs) {
  on_ranks(2, [](const Group& group) {
    auto net = ones(3, 2);
    DistributedDataParallel ddp(net, group);
    torch::optim::SGD sgd(net->parameters(), 0.1);
    ddp.join([&] {
      for (int step = 0; step < 2 + 3 * group.rank(); ++step) {
        set_rate(sgd, 0.1 / (step + 1));
        sgd.zero_grad();
        ddp(row(1)).sum().backward();
        sgd.step();
      }
    });
  });
}

TEST(DriftOfAWrappedOptimizer, IsNoneBetweenLoadingAndBroadcastingItsOptions) {
  on_ranks(2, [](const Group& group) {
    auto net = ones(3, 2);
    torch::optim::SGD sgd(net->parameters(), group.rank() == 0 ? 0.1 : 1);  // rank 0 has loaded it
    DistributedOptimizer optimizer(sgd, *net, group);
    set_rate(optimizer, 0.1);
    net->forward(row(1)).sum().backward();
    optimizer.step();
  });
}

TEST(DriftOfATape, IsNoneWhereItsSourcesNeverWereAlike) {
  on_ranks(2, [](const Group& group) {
    const auto input = torch::full({3}, group.rank() + 1.0).requires_grad_();
    DistributedGradientTape tape(group);
    for (int call = 0; call < drift_steps; ++call) (void)tape.gradient(input.pow(2).sum(), {input});
  });
}

TEST(DriftOfATape, IsFoundAlsoWhereTheSourcesBecameAlikeAfterTheFirstStep) {
  const auto endings = run_ranks(2, [](const Group& group) {
    auto weight = torch::full({3}, group.rank() + 1.0).requires_grad_();
    DistributedGradientTape tape(group);
    for (int call = 0; call < drift_steps; ++call) {
      (void)tape.gradient(weight.pow(2).sum(), {weight});
      const torch::NoGradGuard no_grad;
      weight.fill_(call < 2 ? 1.0 : 1.0 + group.rank());
    }
  });
  for (const auto& ending : endings)
    EXPECT_THAT(ending.text, HasSubstr("parameter #0 has drifted apart: after 4 averaged backwards"));
}

}  // namespace
}  // namespace lockstep
