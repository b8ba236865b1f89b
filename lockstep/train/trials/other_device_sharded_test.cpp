// A ShardedOptimizer's model on another device than the CPU is trained as on it.
#include <gmock/gmock.h>

#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/base/folder_test.h"
#include "lockstep/train/checkpoint/checkpoint.h"
#include "lockstep/train/data_parallel/data_parallel_test.h"
#include "lockstep/train/optimizer/optimizer_state.h"
#include "lockstep/train/replicas/broadcast_state.h"
#include "lockstep/train/sharded/sharded_optimizer.h"
#include "lockstep/train/tensor/device_ranks_test.h"
#include "lockstep/train/tensor/fake_device_test.h"

namespace lockstep {
namespace {

using namespace test;
using testing::HasSubstr;
using torch::Tensor;
using torch::optim::AdamOptions;
using torch::optim::AdamWOptions;
using torch::optim::SGDOptions;

/// Two layers, of which the second one is used at every other step, by the first rank alone.
struct TwoWaysImpl : torch::nn::Module {
  TwoWaysImpl() {
    always = register_module("always", ones(3, 5));
    sometimes = register_module("sometimes", ones(5, 5));
    last = register_module("last", ones(5, 2));
    const torch::NoGradGuard no_grad;
    for (auto& parameter : parameters()) parameter.mul_(0.2);
  }
  Tensor forward(Tensor values, bool all) {
    values = torch::tanh(always(values));
    return last(all ? torch::tanh(sometimes(values)) : values);
  }
  torch::nn::Linear always{nullptr}, sometimes{nullptr}, last{nullptr};
};
TORCH_MODULE(TwoWays);

using AnyOptimizer = std::unique_ptr<torch::optim::Optimizer>;
using Make = std::function<AnyOptimizer(const TwoWays&, const Group&, const ShardedOptions&)>;

template <class Optimizer, class Options>
Make make_of(const Options& options) {
  return [options](const TwoWays& net, const Group& group, const ShardedOptions& sharded) {
    return std::make_unique<ShardedOptimizer<Optimizer>>(*net, group, options, sharded);
  };
}

std::vector<Make> all_kinds() {
  return {make_of<torch::optim::SGD>(SGDOptions(0.1).weight_decay(0.1)),
          make_of<torch::optim::SGD>(SGDOptions(0.1).momentum(0.9).dampening(0.1)),
          make_of<torch::optim::SGD>(SGDOptions(0.1).momentum(0.9).nesterov(true).weight_decay(0.01)),
          make_of<torch::optim::Adam>(AdamOptions(0.05).weight_decay(0.1)),
          make_of<torch::optim::AdamW>(AdamWOptions(0.05).weight_decay(0.1))};
}

TwoWays net_on(torch::Device device, torch::ScalarType type = torch::kFloat32) {
  TwoWays net;
  net->to(device, type);
  return net;
}

void step(const Group& group, TwoWays& net, torch::optim::Optimizer& optimizer, int number) {
  const Tensor& like = net->last->weight;
  const Tensor input = torch::arange(6).view({2, 3}) * 0.1 + (group.rank() + 1) * 0.3 + number * 0.2;
  optimizer.zero_grad();
  const Tensor output =
      net->forward(input.to(like.device(), like.scalar_type()), number % 2 == 1 && group.rank() == 0);
  (output - 1).pow(2).mean().backward();
  optimizer.step();
}

Tensors trained(const Group& group, torch::Device device, const Make& make, const ShardedOptions& options) {
  TwoWays net = net_on(device);
  const AnyOptimizer optimizer = make(net, group, options);
  for (int number = 0; number < 5; ++number) step(group, net, *optimizer, number);
  for (const Tensor& parameter : net->parameters()) EXPECT_EQ(parameter.device(), device);
  return on_cpu(net->parameters());
}

TEST(OtherDevice, IsWhereAShardedOptimizerTrainsAsOnTheCpu) {
  for (const int ranks : {1, 3}) {
    for (const Make& make : all_kinds()) {
      for (const double most : {0.0, 0.05}) {
        on_device_ranks(ranks, [&](const Group& group) {
          const ShardedOptions options{.max_gradient_norm = most};
          expect_close(trained(group, device_of(group), make, options),
                       trained(group, torch::kCPU, make, options));
        });
      }
    }
  }
}

TEST(OtherDevice, HasFusedOptimizersThatDoWhatLibtorchsDo) {
  on_device_ranks(1, [](const Group& group) {
    const auto trained_by = [&](auto make_optimizer) {
      TwoWays net = net_on(device_of(group));
      auto optimizer = make_optimizer(net->parameters());
      for (int number = 0; number < 4; ++number) step(group, net, optimizer, number);
      return on_cpu(net->parameters());
    };
    const auto sgd = SGDOptions(0.1).momentum(0.9).nesterov(true).weight_decay(0.01);
    const auto adamw = AdamWOptions(0.05).weight_decay(0.1);
    expect_close(trained_by([&](const Tensors& all) { return FusedSGD(all, sgd); }),
                 trained_by([&](const Tensors& all) { return torch::optim::SGD(all, sgd); }));
    expect_close(trained_by([&](const Tensors& all) { return FusedAdamW(all, adamw); }),
                 trained_by([&](const Tensors& all) { return torch::optim::AdamW(all, adamw); }));
  });
}

TEST(OtherDevice, KeepsMastersOfAShardedOptimizersHalves) {
  on_device_ranks(2, [](const Group& group) {
    // So small a step that a half alone would never move.
    const Make make = make_of<torch::optim::SGD>(SGDOptions(1e-4).momentum(0.9));
    const auto after = [&](torch::Device device) {
      TwoWays net = net_on(device, torch::kBFloat16);
      const AnyOptimizer optimizer = make(net, group, {});
      for (int number = 0; number < 60; ++number) step(group, net, *optimizer, number);
      return net->last->bias.to(torch::kCPU, torch::kFloat32);
    };
    const Tensor expected = after(torch::kCPU), found = after(device_of(group));
    EXPECT_FALSE(
        torch::equal(expected, torch::full_like(expected, 0.2F).to(torch::kBFloat16).to(torch::kFloat32)));
    EXPECT_TRUE(torch::allclose(found, expected, 0.01)) << found << expected;
  });
}

struct OtherDeviceState : test::FolderTest {};

TEST_F(OtherDeviceState, OfAShardedOptimizerGoesToTheCpuAndBack) {
  for (const bool is_sharded : {false, true}) {
    on_device_ranks(2, [&](const Group& group) {
      const Make make = make_of<torch::optim::Adam>(AdamOptions(0.05));
      const auto file = folder_ / (is_sharded ? "sharded" : "whole");
      TwoWays net = net_on(device_of(group)), on_cpu_net = net_on(torch::kCPU),
              back = net_on(device_of(group));
      const AnyOptimizer optimizer = make(net, group, {});
      for (int number = 0; number < 2; ++number) step(group, net, *optimizer, number);
      save_checkpoint(file, group, net, *optimizer, {}, {.sharded = is_sharded});
      step(group, net, *optimizer, 2);  // what saving leaves is not in the way

      const AnyOptimizer on_cpu_optimizer = make(on_cpu_net, group, {});
      load_checkpoint(file, group, on_cpu_net, *on_cpu_optimizer);
      step(group, on_cpu_net, *on_cpu_optimizer, 2);
      expect_close(on_cpu(net->parameters()), on_cpu(on_cpu_net->parameters()));

      save_checkpoint(file, group, on_cpu_net, *on_cpu_optimizer, {}, {.sharded = is_sharded});
      const AnyOptimizer optimizer_back = make(back, group, {});
      load_checkpoint(file, group, back, *optimizer_back);
      for (const auto& [a_net, its] :
           {std::pair(&back, optimizer_back.get()), std::pair(&net, optimizer.get())})
        step(group, *a_net, *its, 3);
      expect_close(on_cpu(back->parameters()), on_cpu(net->parameters()));
    });
  }
}

TEST(OtherDevice, HasStateOfAShardedOptimizerThatIsNotSavedInParts) {
  on_device_ranks(2, [](const Group& group) {
    TwoWays net = net_on(device_of(group)), other = net_on(device_of(group));
    const Make make = make_of<torch::optim::Adam>(AdamOptions(0.05));
    const AnyOptimizer optimizer = make(net, group, {}), other_optimizer = make(other, group, {});
    step(group, net, *optimizer, 0);
    try {
      optimizer_state(*optimizer);
      ADD_FAILURE() << "a part was saved as the whole";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      EXPECT_THAT(error.what(), HasSubstr("call gather_state() on all of them before save()"));
    }
    try {
      broadcast_optimizer_state(group, *optimizer);
      ADD_FAILURE() << "a part was sent as the whole";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("on rank 0 each rank has its part"));
    }
    dynamic_cast<const ShardedState&>(*optimizer).gather_state();
    const std::string state = optimizer_state(*optimizer);
    restore_optimizer(*other_optimizer, state);
    EXPECT_EQ(optimizer_state(*other_optimizer).size(), state.size()) << "what was loaded is whole";
    const torch::NoGradGuard no_grad;
    for (std::size_t i = 0; i < net->parameters().size(); ++i)
      other->parameters()[i].copy_(net->parameters()[i]);
    const torch::AutoGradMode grad(true);
    step(group, net, *optimizer, 1);
    step(group, other, *other_optimizer, 1);
    expect_close(on_cpu(other->parameters()), on_cpu(net->parameters()));
  });
}

TEST(OtherDevice, GivesAShardedOptimizersParametersBack) {
  on_device_ranks(2, [](const Group& group) {
    TwoWays net = net_on(device_of(group));
    AnyOptimizer optimizer = make_of<torch::optim::SGD>(SGDOptions(0.1))(net, group, {});
    step(group, net, *optimizer, 1);
    const Tensors before = on_cpu(net->parameters());
    optimizer.reset();
    for (const Tensor& parameter : net->parameters())
      EXPECT_EQ(parameter.storage().nbytes(), parameter.nbytes()) << "its own memory, and nothing else's";
    expect_close(on_cpu(net->parameters()), before);
  });
}

TEST(OtherDevice, HasStepsOfAShardedOptimizerThatAreLeftOut) {
  on_device_ranks(2, [](const Group& group) {
    TwoWays net = net_on(device_of(group));
    const AnyOptimizer optimizer =
        make_of<torch::optim::SGD>(SGDOptions(0.1))(net, group, {.non_finite = NonFinite::skip});
    const Tensors before = on_cpu(net->parameters());
    net->last->bias.mutable_grad() =
        torch::full_like(net->last->bias, group.rank() == 1 ? std::numeric_limits<float>::quiet_NaN() : 1.0F);
    optimizer->step();
    expect_close(on_cpu(net->parameters()), before);
  });
}

TEST(OtherDevice, HasAShardedOptimizersParametersWatched) {
  const auto endings = run_device_ranks(2, [](const Group& group) {
    TwoWays net = net_on(device_of(group));
    torch::optim::SGD left_from_before(net->parameters(), SGDOptions(0.1));
    const AnyOptimizer optimizer = make_of<torch::optim::SGD>(SGDOptions(0.1))(net, group, {});
    for (int number = 0; number < 4; ++number) step(group, net, left_from_before, number);
  });
  for (const Ending& ending : endings)
    EXPECT_THAT(ending.text, HasSubstr("another optimizer over them, built before, steps in its place"));
}

TEST(OtherDevice, IsOneForAllOfAShardedOptimizersParameters) {
  const auto endings = run_device_ranks(2, [](const Group& group) {
    TwoWays net;
    net->last->to(device_of(group));
    make_of<torch::optim::SGD>(SGDOptions(0.1))(net, group, {});
  });
  for (const Ending& ending : endings) {
    EXPECT_EQ(ending.code, ErrorCode::unsupported);
    EXPECT_THAT(ending.text,
                HasSubstr("rank 0: parameter last.weight is f32 [2, 5] on " + other_device(0).str() +
                          ", and parameter always.weight is f32 [5, 3]; a ShardedOptimizer puts parameters "
                          "into one array"));
  }
}

}  // namespace
}  // namespace lockstep
