#include "lockstep/train/sharded/sharded_optimizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <memory>
#include <sstream>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/base/failure_test.h"
#include "lockstep/group/collectives.h"
#include "lockstep/trace/recorder.h"
#include "lockstep/train/tensor/ranks_test.h"

namespace lockstep {
namespace {

using test::Ending;
using test::on_ranks;
using test::run_ranks;
using test::same_bits;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using torch::optim::AdamWOptions;
using torch::optim::OptimizerParamGroup;
using torch::optim::SGDOptions;

using ShardedSGD = ShardedOptimizer<torch::optim::SGD>;
using ShardedAdamW = ShardedOptimizer<torch::optim::AdamW>;

/// Sizes that no number of ranks divides.
struct Net : torch::nn::Module {
  explicit Net(double value = 0.5) {
    for (const std::int64_t size : {301, 7, 1, 64, 1000})
      parameters_.push_back(register_parameter(std::string("p").append(std::to_string(parameters_.size())),
                                               torch::linspace(-value, value, size)));
    table = register_parameter("table", torch::full({8, 3}, value));
  }
  std::vector<torch::Tensor> parameters_;
  torch::Tensor table;
};

/// A gradient for each parameter, another one on each rank and in each step.
void set_gradients(Net& net, int rank, int step) {
  double factor = 1 + rank + 10 * step;
  for (auto& parameter : net.parameters()) {
    parameter.mutable_grad() = torch::sin(torch::arange(parameter.numel(), torch::kFloat64) * factor)
                                   .to(parameter.scalar_type())
                                   .reshape(parameter.sizes());
    factor += 0.1;
  }
}

/// What all ranks' gradients average to, added in the order of ranks.
void set_average(Net& net, int ranks, int step) {
  std::vector<torch::Tensor> sums;
  for (int rank = 0; rank < ranks; ++rank) {
    set_gradients(net, rank, step);
    for (std::size_t i = 0; i < net.parameters().size(); ++i) {
      const auto gradient = net.parameters()[i].grad();
      if (rank == 0)
        sums.push_back(gradient.clone());
      else
        sums[i] += gradient;
    }
  }
  for (std::size_t i = 0; i < sums.size(); ++i)
    net.parameters()[i].mutable_grad() = sums[i] * static_cast<float>(1.0 / ranks);
}

void expect_same(const torch::nn::Module& net, const torch::nn::Module& expected) {
  const auto found = net.named_parameters();
  for (const auto& item : expected.named_parameters())
    EXPECT_TRUE(same_bits(found[item.key()].detach(), item.value().detach())) << item.key();
}

class ShardedOptimizers : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, ShardedOptimizers, testing::Values(1, 2, 3, 4, 7));

TEST_P(ShardedOptimizers, DoBitForBitWhatTheFusedOnesMakeOfTheAverage) {
  const auto compare = [](const Group& group, auto options, auto sharded_kind, auto fused_kind) {
    Net net(group.rank() == 0 ? 0.5 : 9), expected;
    typename decltype(sharded_kind)::type sharded(net, group, options);
    typename decltype(fused_kind)::type fused(expected.parameters(), options);
    for (int step = 0; step < 4; ++step) {
      set_gradients(net, group.rank(), step);
      sharded.step();
      set_average(expected, group.size(), step);
      fused.step();
      expect_same(net, expected);
    }
  };
  on_ranks(GetParam(), [&](const Group& group) {
    compare(group, SGDOptions(0.1), std::type_identity<ShardedSGD>(), std::type_identity<FusedSGD>());
    compare(group, SGDOptions(0.1).momentum(0.9).weight_decay(0.01), std::type_identity<ShardedSGD>(),
            std::type_identity<FusedSGD>());
    compare(group, AdamWOptions(0.01), std::type_identity<ShardedAdamW>(), std::type_identity<FusedAdamW>());
  });
}

TEST_P(ShardedOptimizers, ExchangeTheirStateWithLibtorchsAndOtherNumbersOfRanks) {
  std::string saved;
  Net expected;
  FusedAdamW fused(expected.parameters(), AdamWOptions(0.01));
  const auto train = [](auto& optimizer, Net& net, int from, int to) {
    for (int step = from; step < to; ++step) {
      set_average(net, 1, step);
      optimizer.step();
    }
  };
  train(fused, expected, 0, 6);
  std::vector<torch::Tensor> model;
  on_ranks(GetParam(), [&](const Group& group) {
    Net net;
    ShardedAdamW sharded(net, group, AdamWOptions(0.01));
    train(sharded, net, 0, 3);
    if (group.rank() != 0) return;
    std::ostringstream out;
    torch::save(sharded, out);
    saved = out.str();
    for (const auto& parameter : net.parameters()) model.push_back(parameter.detach().clone());
  });
  const auto restore = [&](Net& net, auto& optimizer) {
    const torch::NoGradGuard no_grad;
    for (std::size_t i = 0; i < model.size(); ++i) net.parameters()[i].copy_(model[i]);
    std::istringstream in(saved);
    torch::load(optimizer, in);
  };
  on_ranks(3, [&](const Group& group) {
    Net net;
    ShardedAdamW sharded(net, group, AdamWOptions(0.01));
    barrier(group).wait();
    if (group.rank() == 0) restore(net, sharded);
    barrier(group).wait();
    if (group.rank() != 0) restore(*std::make_unique<Net>(), sharded);
    train(sharded, net, 3, 6);
    for (std::size_t i = 0; i < model.size(); ++i)
      EXPECT_TRUE(torch::allclose(net.parameters()[i], expected.parameters()[i], 1e-5, 1e-6));
  });
  Net net;
  torch::optim::AdamW plain(net.parameters(), AdamWOptions(0.01));
  restore(net, plain);
  train(plain, net, 3, 6);
  for (std::size_t i = 0; i < model.size(); ++i)
    EXPECT_TRUE(torch::allclose(net.parameters()[i], expected.parameters()[i], 1e-5, 1e-6));
}

TEST(ShardedOptimizer, KeepsOneCopyOfParametersAndStateUntilItEnds) {
  std::vector<const void*> parameters(2), states(2), afterwards(2);
  on_ranks(2, [&](const Group& group) {
    const auto rank = static_cast<std::size_t>(group.rank());
    Net net;
    {
      ShardedSGD sharded(net, group, SGDOptions(0.1).momentum(0.9));
      set_gradients(net, group.rank(), 0);
      sharded.step();
      parameters[rank] = net.table.const_data_ptr();
      const auto& state = *sharded.state().at(net.table.unsafeGetTensorImpl());
      states[rank] =
          static_cast<const torch::optim::SGDParamState&>(state).momentum_buffer().const_data_ptr();
      barrier(group).wait();
    }
    afterwards[rank] = net.table.const_data_ptr();
    barrier(group).wait();
  });
  EXPECT_EQ(parameters[0], parameters[1]);
  EXPECT_EQ(states[0], states[1]);
  EXPECT_NE(afterwards[0], afterwards[1]);
}

TEST(ShardedOptimizer, LeavesOneEventInTheRecordForEachStep) {
  on_ranks(2, [](const Group& group) {
    Net net;
    ShardedSGD sharded(net, group, SGDOptions(0.1));
    const auto position = group.recorder().steps();
    for (int step = 0; step < 3; ++step) {
      set_gradients(net, group.rank(), step);
      sharded.step();
    }
    const auto steps = group.recorder().steps_since(position);
    ASSERT_EQ(steps.size(), 3U);
    std::uint64_t bytes = 0;
    for (const auto& parameter : net.parameters()) bytes += parameter.nbytes();
    for (std::uint64_t i = 0; i < steps.size(); ++i) {
      EXPECT_EQ(steps[i].step, i);
      EXPECT_EQ(steps[i].gradient_bytes, bytes);
      EXPECT_GT(steps[i].exposed_wait_ns, 0U);
      EXPECT_GT(steps[i].exposed_work_ns, 0U);
      EXPECT_LT(steps[i].exposed_work_ns + steps[i].exposed_wait_ns, steps[i].end_ns - steps[i].begin_ns);
    }
  });
}

TEST(ShardedOptimizer, TakesGroupsSchedulesSparseAndMissingGradients) {
  on_ranks(3, [](const Group& group) {
    Net net;
    const auto before = net.table.detach().clone();
    const auto p0 = net.parameters_[0].detach().clone(), p1 = net.parameters_[1].detach().clone();
    const auto p2 = net.parameters_[2].detach().clone();
    ShardedSGD sharded(net, group,
                       {OptimizerParamGroup({net.table, net.parameters_[0]}),
                        OptimizerParamGroup({net.parameters_[1]}, std::make_unique<SGDOptions>(0.5))},
                       SGDOptions(1.0));
    for (int step = 0; step < 2; ++step) {
      sharded.zero_grad();
      if (group.rank() == 1) {
        const auto indices = torch::tensor({{5}}), values = torch::ones({1, 3});
        net.table.mutable_grad() = torch::sparse_coo_tensor(indices, values, {8, 3});
      }
      net.parameters_[1].mutable_grad() = torch::ones(7);
      net.parameters_[2].mutable_grad() = torch::ones(1);  // in no group
      sharded.step();
      for (auto& group_options : sharded.param_groups())  // as schedulers do
        group_options.options().set_lr(0.1 * group_options.options().get_lr());
    }
    auto expected = before.clone();
    expected[5] -= 1.1 / 3;
    EXPECT_TRUE(torch::allclose(net.table.detach(), expected));
    EXPECT_TRUE(torch::allclose(net.parameters_[1].detach(), p1 - 0.55));
    EXPECT_TRUE(same_bits(net.parameters_[0].detach(), p0)) << "no rank had a gradient";
    EXPECT_TRUE(same_bits(net.parameters_[2].detach(), p2)) << "it is in no group";
  });
}

TEST(ShardedOptimizer, KeepsMastersForHalves) {
  on_ranks(2, [](const Group& group) {
    Net net, wide;
    net.to(torch::kBFloat16);
    {
      const torch::NoGradGuard no_grad;
      for (std::size_t i = 0; i < net.parameters().size(); ++i)
        wide.parameters()[i].copy_(net.parameters()[i].to(torch::kFloat32));
    }
    ShardedSGD sharded(net, group, SGDOptions(1e-4).momentum(0.9));
    ShardedSGD reference(wide, group, SGDOptions(1e-4).momentum(0.9));
    const auto step = [&](int number) {
      set_gradients(net, group.rank(), number);
      for (std::size_t i = 0; i < net.parameters().size(); ++i)
        wide.parameters()[i].mutable_grad() = net.parameters()[i].grad().to(torch::kFloat32);
      sharded.step();
      reference.step();
    };
    const auto expect_rounded = [&] {
      for (std::size_t i = 0; i < net.parameters().size(); ++i)
        EXPECT_TRUE(
            torch::equal(net.parameters()[i].detach(), wide.parameters()[i].detach().to(torch::kBFloat16)));
    };
    for (int number = 0; number < 20; ++number) step(number);  // steps far below what a half can show
    expect_rounded();
    barrier(group).wait();
    {
      const torch::NoGradGuard no_grad;  // as loading does, on all ranks
      for (auto& parameter : net.parameters()) parameter.fill_(0.25);
      for (auto& parameter : wide.parameters()) parameter.fill_(0.25);
    }
    barrier(group).wait();
    step(20);
    expect_rounded();
  });
}

TEST(ShardedOptimizer, ShortensLongGradients) {
  on_ranks(3, [](const Group& group) {
    Net net, expected;
    ShardedSGD sharded(net, group, SGDOptions(0.1), {.max_gradient_norm = 2});
    FusedSGD fused(expected.parameters(), SGDOptions(0.1));
    set_gradients(net, group.rank(), 1);
    sharded.step();
    set_average(expected, 3, 1);
    EXPECT_GT(torch::nn::utils::clip_grad_norm_(expected.parameters(), 2), 2);
    fused.step();
    for (std::size_t i = 0; i < net.parameters().size(); ++i)
      EXPECT_TRUE(torch::allclose(net.parameters()[i], expected.parameters()[i], 1e-6, 1e-7))
          << "parameter " << i << ", rank " << group.rank() << ": "
          << (net.parameters()[i] - expected.parameters()[i]).abs().max();
  });
}

TEST(ShardedOptimizer, SkipsOrStopsAtGradientsThatAreNotFinite) {
  for (const NonFinite policy : {NonFinite::skip, NonFinite::stop}) {
    const auto endings = run_ranks(3, [&](const Group& group) {
      Net net, untouched;
      ShardedSGD sharded(net, group, SGDOptions(0.1).momentum(0.9), {.non_finite = policy});
      set_gradients(net, group.rank(), 0);
      if (group.rank() == 1) net.parameters_[3].mutable_grad()[5] = std::numeric_limits<float>::quiet_NaN();
      if (group.rank() == 2) net.table.mutable_grad()[0][0] = std::numeric_limits<float>::infinity();
      sharded.step();
      expect_same(net, untouched);
      EXPECT_EQ(sharded.skipped(), 1U);
      set_gradients(net, group.rank(), 0);
      sharded.step();
      EXPECT_EQ(sharded.skipped(), 1U);
      EXPECT_FALSE(torch::equal(net.table, untouched.table));
    });
    for (const Ending& ending : endings) {
      EXPECT_EQ(ending.ok, policy == NonFinite::skip) << ending.text;
      if (ending.ok) continue;
      EXPECT_EQ(ending.code, ErrorCode::invalid_argument);
      EXPECT_EQ(ending.text,
                "step 0: the gradient of parameter p3 on rank 1 is not finite; no rank took this step. Lower "
                "the learning rate, clip gradients, or skip such steps (NonFinite::skip)");
    }
  }
}

TEST(ShardedOptimizer, NamesOptionsThatDiffer) {
  for (const Ending& ending : run_ranks(2, [](const Group& group) {
         Net net;
         ShardedSGD sharded(net, group, SGDOptions(group.rank() == 0 ? 0.1 : 0.2));
         set_gradients(net, group.rank(), 0);
         sharded.step();
       })) {
    EXPECT_EQ(ending.code, ErrorCode::mismatch);
    EXPECT_THAT(ending.text,
                HasSubstr("rank 1's learning rate is 0.2, rank 0's is 0.1. Set the optimizer's"));
  }
}

/// On all ranks.
void expect_refusal(const std::function<void(Net&, const Group&)>& make, const char* begin) {
  for (const Ending& ending : run_ranks(2, [&](const Group& group) {
         Net net;
         make(net, group);
       })) {
    EXPECT_THAT(ending.text, StartsWith(begin));
  }
}

TEST(ShardedOptimizer, NamesItsOwnOptionsAndKindsThatDiffer) {
  expect_refusal(
      [](Net& net, const Group& group) {
        const ShardedSGD sharded(net, group, SGDOptions(0.1),
                                 {.max_gradient_norm = group.rank() == 0 ? 1.0 : 0.5});
      },
      "rank 1's option max_gradient_norm is 0.500000, rank 0's is 1.000000");
  expect_refusal(
      [](Net& net, const Group& group) {
        if (group.rank() == 0) {
          const ShardedAdamW sharded(net, group, AdamWOptions(0.1));
        } else {
          const ShardedSGD sharded(net, group, SGDOptions(0.1));
        }
      },
      "rank 1's optimizer's parameter group 0 is SGD, 6 parameters, rank 0's is AdamW, 6 parameters");
  expect_refusal(
      [](Net& net, const Group& group) {
        const ShardedSGD sharded(net, group, SGDOptions(0.1), {.max_gradient_norm = -1});
      },
      "ShardedOptions::max_gradient_norm is -1.000000; it is 0, for never, or what gradients are shortened "
      "to");
}

TEST(ShardedOptimizer, RefusesTheStateOfAnotherModel) {
  for (const Ending& ending : run_ranks(2, [](const Group& group) {
         Net net;
         ShardedAdamW sharded(net, group, AdamWOptions(0.1));
         auto state = std::make_unique<torch::optim::AdamWParamState>();
         state->exp_avg(torch::ones({8, 4}));
         state->exp_avg_sq(torch::ones({8, 4}));
         sharded.state()[net.table.unsafeGetTensorImpl()] = std::move(state);
         set_gradients(net, group.rank(), 0);
         sharded.step();
       })) {
    EXPECT_EQ(ending.text,
              "the optimizer's state of parameter table, f32 [8, 3], is f32 [8, 4]: that of another model; "
              "load what was saved with this one");
  }
}

TEST(ShardedOptimizer, LoadsNoStateOfAnotherModel) {
  on_ranks(2, [](const Group& group) {
    Net net;
    ShardedAdamW sharded(net, group, AdamWOptions(0.1));
    set_gradients(net, group.rank(), 0);
    sharded.step();
    const auto moments = [&] {
      const auto& state = *sharded.state().at(net.table.unsafeGetTensorImpl());
      return static_cast<const torch::optim::AdamWParamState&>(state).exp_avg();
    };
    const auto before = moments().clone();
    EXPECT_FALSE(torch::equal(before, torch::zeros_like(before)));
    auto wider = net.parameters();
    for (auto& parameter : wider) {
      parameter = torch::zeros({parameter.numel() + 1}, torch::requires_grad());
      parameter.mutable_grad() = torch::ones_like(parameter);
    }
    torch::optim::AdamW of_another(wider, AdamWOptions(0.2));
    of_another.step();
    std::stringstream file;
    torch::save(of_another, file);
    EXPECT_THAT(test::failure_of([&] { torch::load(sharded, file); }, ErrorCode::invalid_argument),
                HasSubstr("that of another model; load what was saved with this one"));
    EXPECT_EQ(sharded.param_groups()[0].options().get_lr(), 0.1);
    barrier(group).wait();
    EXPECT_TRUE(torch::equal(moments(), before)) << "nothing has changed";
  });
}

TEST(ShardedOptimizer, HasTheStateThatWasLoadedAndNoOther) {
  on_ranks(2, [](const Group& group) {
    Net net, fresh;
    const auto state = [](const ShardedAdamW& optimizer, const Net& of) {
      const auto& found = *optimizer.state().at(of.table.unsafeGetTensorImpl());
      return static_cast<const torch::optim::AdamWParamState&>(found);
    };
    ShardedAdamW sharded(net, group, AdamWOptions(0.1)), unused(fresh, group, AdamWOptions(0.1));
    std::stringstream none;
    torch::save(unused, none);
    set_gradients(net, group.rank(), 0);
    sharded.step();
    const auto first = state(sharded, net).exp_avg().clone();
    sharded.step();
    barrier(group).wait();
    torch::load(sharded, none);
    sharded.step();
    EXPECT_EQ(state(sharded, net).step(), 1);
    EXPECT_TRUE(torch::equal(state(sharded, net).exp_avg(), first));
  });
}

torch::Tensor loss_of(const Net& net) {
  torch::Tensor sum = net.table.sum();
  for (const auto& parameter : net.parameters_) sum = sum + parameter.square().sum();
  return sum;
}

TEST(ShardedOptimizer, NoticesThatAnotherOneStepsInItsPlace) {
  const auto endings = run_ranks(2, [](const Group& group) {
    Net net;
    torch::optim::SGD from_before(net.parameters(), SGDOptions(0.1));
    const ShardedSGD optimizer(net, group, SGDOptions(0.1));
    for (int step = 0; step < 3; ++step) {
      loss_of(net).backward();
      barrier(group).wait();
      from_before.step();
      barrier(group).wait();
    }
    ADD_FAILURE() << "no error";
  });
  for (const auto& ending : endings) {
    EXPECT_EQ(ending.code, ErrorCode::invalid_argument);
    EXPECT_THAT(ending.text, HasSubstr("change between backwards, and not by its step(): another optimizer"));
    EXPECT_THAT(ending.text, HasSubstr("call step() of the ShardedOptimizer alone"));
  }
}

TEST(ShardedOptimizer, LetsParametersBeLoadedAndClampedBetweenSteps) {
  on_ranks(2, [](const Group& group) {
    Net net;
    ShardedSGD optimizer(net, group, SGDOptions(0.1));
    const auto change_by = [&](double value) {
      barrier(group).wait();
      const torch::NoGradGuard no_grad;
      if (group.rank() == 0) {
        for (auto& parameter : net.parameters()) parameter.add_(value);
      }
      barrier(group).wait();
    };
    for (int step = 0; step < 4; ++step) {
      optimizer.zero_grad();
      loss_of(net).backward();  // is given up: what is loaded next is another model
      change_by(0.25);
      loss_of(net).backward();
      loss_of(net).backward();
      optimizer.step();
      change_by(-0.25);
    }
  });
}

TEST(ShardedOptimizer, NamesModelsThatDiffer) {
  for (const Ending& ending : run_ranks(2, [](const Group& group) {
         torch::nn::Linear net(3, 4 + group.rank());
         const ShardedSGD sharded(*net, group, SGDOptions(0.1));
       })) {
    EXPECT_EQ(ending.code, ErrorCode::mismatch);
    EXPECT_THAT(ending.text, StartsWith("rank 1's parameter weight is f32 [5, 3], rank 0's is f32 [4, 3]"));
  }
}

TEST(ShardedOptimizer, RefusesParametersThatWereConvertedOrAreNotTheModules) {
  for (const Ending& ending : run_ranks(2, [](const Group& group) {
         Net net;
         ShardedSGD sharded(net, group, SGDOptions(0.1));
         net.to(torch::kFloat64);
         sharded.step();
       })) {
    EXPECT_EQ(ending.code, ErrorCode::invalid_argument);
    EXPECT_EQ(ending.text,
              "parameter p0 is f64 [301] and no longer where this optimizer had put it; convert, resize and "
              "replace parameters before the optimizer is made");
  }
  for (const Ending& ending : run_ranks(2, [](const Group& group) {
         Net net;
         const auto stranger = torch::ones({2}, torch::requires_grad());
         const ShardedSGD sharded(net, group, {OptimizerParamGroup({net.table, stranger})}, SGDOptions(0.1));
       })) {
    EXPECT_EQ(ending.code, ErrorCode::invalid_argument);
    EXPECT_EQ(ending.text,
              "the optimizer has a parameter, f32 [2], that is not a trainable one of its module");
  }
}

TEST(ShardedOptimizer, FailsWhereARankIsGone) {
  const auto endings = run_ranks(3, [](const Group& group) {
    Net net;
    ShardedSGD sharded(net, group, SGDOptions(0.1).momentum(0.9));
    set_gradients(net, group.rank(), 0);
    sharded.step();
    if (group.rank() == 1) return;
    for (int step = 1; step < 3; ++step) {
      set_gradients(net, group.rank(), step);
      EXPECT_THROW(sharded.step(), Error);
    }
  });
  for (const Ending& ending : endings) EXPECT_TRUE(ending.ok) << ending.text;
}

}  // namespace
}  // namespace lockstep
