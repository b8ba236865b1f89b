// Models on another device than the CPU are trained as they are on it.
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <gmock/gmock.h>

#include <cstdlib>
#include <filesystem>
#include <limits>
#include <string>
#include <vector>

#include "lockstep/group/collectives.h"
#include "lockstep/train/checkpoint/checkpoint.h"
#include "lockstep/train/data_parallel/data_parallel_test.h"
#include "lockstep/train/replicas/sync_batch_norm.h"
#include "lockstep/train/tensor/device_ranks_test.h"
#include "lockstep/train/tensor/fake_device_test.h"
#include "lockstep/train/tensor/gpu_place.h"

namespace lockstep {
namespace {

using namespace test;
using testing::HasSubstr;
using torch::nn::Linear;
using torch::nn::Sequential;
const torch::Device cpu = torch::kCPU;

Sequential make_net(torch::Device device) {
  Sequential net(ones(3, 4), torch::nn::Tanh(), ones(4, 2));
  const torch::NoGradGuard no_grad;
  for (auto& parameter : net->parameters()) parameter.mul_(0.2);
  net->to(device);
  return net;
}

torch::Tensor input_of(int rank, int step) {
  return torch::arange(6).view({2, 3}) * 0.1 + (rank + 1) * 0.3 + step * 0.2;
}

torch::Tensor loss_of(const torch::Tensor& output) { return (output - 1).pow(2).mean(); }

torch::optim::SGD optimizer_of(const Sequential& net) {
  return torch::optim::SGD(net->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
}

/// The gradient is on the device and full of `value`.
void expect_gradient(const torch::Tensor& parameter, double value) {
  ASSERT_TRUE(parameter.grad().defined());
  EXPECT_EQ(parameter.grad().device(), parameter.device());
  const auto gradient = parameter.grad().to(cpu);
  EXPECT_TRUE(torch::allclose(gradient, torch::full_like(gradient, value))) << gradient;
}

Tensors trained(const Group& group, torch::Device device, const DataParallelOptions& options) {
  const auto net = make_net(device);
  DistributedDataParallel ddp(net, group, options);
  auto optimizer = optimizer_of(net);
  for (int step = 0; step < 4; ++step) {
    optimizer.zero_grad(/*set_to_none=*/step % 2 == 0);
    loss_of(ddp(input_of(group.rank(), step).to(device))).backward();
    optimizer.step();
  }
  return on_cpu(net->parameters());
}

TEST(OtherDevice, TrainsAsTheCpuDoes) {
  const std::vector<DataParallelOptions> all_options = {
      {},
      small_buckets,
      {.find_unused_parameters = true},
      {.static_graph = true},
      {.shared_heap = false},
      {.non_finite = NonFinite::stop},
  };
  for (const auto& options : all_options) {
    on_device_ranks(3, [&](const Group& group) {
      expect_close(trained(group, device_of(group), options), trained(group, cpu, options));
    });
  }
}

/// One that nothing else uses.
c10::Stream stream_of_its_own(torch::Device device) {
  const c10::impl::VirtualGuardImpl devices(device.type());
  return device.is_cuda() ? devices.getStreamFromGlobalPool(device) : devices.getStream(device);
}

/// The gradients of wide layers, whose kernels a GPU begins long before they are over.
Tensors gradients_of_wide_layers(const Group& group, torch::Device device) {
  Sequential net(ones(512, 512), ones(512, 512), ones(512, 512));
  const torch::NoGradGuard no_grad;
  for (auto& parameter : net->parameters())
    parameter.copy_(torch::linspace(0.001, 0.01, parameter.numel()).view_as(parameter));
  net->to(device);
  DistributedDataParallel ddp(net, group, small_buckets);
  Tensors sums;
  for (int step = 0; step < 5; ++step) {
    net->zero_grad(/*set_to_none=*/step % 2 == 0);
    {
      const torch::AutoGradMode with_grad(true);
      ddp((torch::ones({256, 512}) * (group.rank() + step + 1)).to(device)).sum().backward();
    }
    for (const auto& parameter : net->parameters()) sums.push_back(parameter.grad().sum());
  }
  return on_cpu(sums);
}

TEST(OtherDevice, MayComputeOnAStreamOfItsOwn) {
  on_device_ranks(2, [](const Group& group) {
    const auto expected = gradients_of_wide_layers(group, cpu);
    for (int times = 0; times < 3; ++times) {
      const c10::StreamGuard guard(stream_of_its_own(device_of(group)));
      const auto found = gradients_of_wide_layers(group, device_of(group));
      ASSERT_EQ(found.size(), expected.size());
      for (std::size_t i = 0; i < found.size(); ++i)
        EXPECT_NEAR(found[i].item<double>() / expected[i].item<double>(), 1, 1e-3) << "sum " << i;
    }
  });
}

TEST(OtherDevice, StartsWithRank0sParametersAndBuffers) {
  on_device_ranks(2, [](const Group& group) {
    torch::nn::BatchNorm1d net(4);
    {
      const torch::NoGradGuard no_grad;
      for (auto& t : net->parameters()) t.fill_(group.rank() + 1);
      net->running_mean.fill_(group.rank() + 1);
    }
    net->to(device_of(group));
    const DistributedDataParallel ddp(net, group);
    EXPECT_TRUE(torch::equal(net->weight.to(cpu), torch::ones({4})));
    EXPECT_TRUE(torch::equal(net->running_mean.to(cpu), torch::ones({4})));
    EXPECT_EQ(net->weight.device(), device_of(group));
  });
}

/// Its buffer is in the backward.
struct Scaled : torch::nn::Module {
  explicit Scaled(double by) {
    register_parameter("weight", weight);
    register_buffer("factor", factor.fill_(by));
  }
  torch::Tensor forward(const torch::Tensor& x) { return x * weight * factor; }
  torch::Tensor weight = torch::ones({3}).requires_grad_();
  torch::Tensor factor = torch::empty({3});
};

TEST(OtherDevice, GetsRank0sBuffersWithoutHarmToEarlierForwards) {
  on_device_ranks(2, [](const Group& group) {
    const auto net = std::make_shared<Scaled>(group.rank() + 2);
    net->to(device_of(group));
    DistributedDataParallel ddp(net, group);
    const auto first = ddp(row(1).to(device_of(group)));
    const auto second = ddp(row(1).to(device_of(group)));
    (first + second).sum().backward();
    expect_gradient(net->weight, 4);
  });
}

TEST(OtherDevice, AddsUpWithoutZeroGradAndWithoutSync) {
  on_device_ranks(2, [](const Group& group) {
    auto net = ones(3, 2);
    net->to(device_of(group));
    DistributedDataParallel ddp(net, group, small_buckets);
    const auto input = row(group.rank() + 1).to(device_of(group));
    ddp(input).sum().backward();
    ddp(input).sum().backward();
    expect_gradient(net->weight, 2 * average_of_inputs(group));
    net->zero_grad();
    {
      const auto alone = ddp.no_sync();
      ddp(input).sum().backward();
      expect_gradient(net->weight, group.rank() + 1);
    }
    ddp(input).sum().backward();
    expect_gradient(net->weight, 2 * average_of_inputs(group));
  });
}

TEST(OtherDevice, GivesAGradientToRanksThatLeftTheParameterOut) {
  on_device_ranks(2, [](const Group& group) {
    const auto net = std::make_shared<Unused>();
    net->to(device_of(group));
    DistributedDataParallel ddp(net, group, {.find_unused_parameters = true});
    ddp(row(2).to(device_of(group)), group.rank() == 1).sum().backward();
    expect_gradient(net->used->weight, 2);
    expect_gradient(net->spare->weight, 1);
  });
}

TEST(OtherDevice, AveragesSparseGradients) {
  on_device_ranks(2, [](const Group& group) {
    const auto device = device_of(group).is_cuda() ? device_of(group) : cpu;  // the fake one has none
    torch::nn::Embedding table(torch::nn::EmbeddingOptions(4, 2).sparse(true));
    table->to(device);
    DistributedDataParallel ddp(table, group);
    for (int step = 0; step < 2; ++step) {
      table->zero_grad();
      ddp(torch::tensor({group.rank(), 3}).to(device)).sum().backward();
      const auto gradient = table->weight.grad();
      EXPECT_EQ(gradient.device(), device);
      ASSERT_TRUE(gradient.is_sparse());
      const auto expected = torch::tensor({0.5, 0.5, 0., 1.}).view({4, 1}).expand({4, 2}).to(torch::kFloat32);
      EXPECT_TRUE(torch::equal(gradient.to(cpu).to_dense(), expected)) << gradient;
    }
  });
}

TEST(OtherDevice, SkipsGradientsThatAreNotFinite) {
  on_device_ranks(2, [](const Group& group) {
    auto net = ones(3, 2);
    net->to(device_of(group));
    DistributedDataParallel ddp(net, group, {.non_finite = NonFinite::skip});
    const double value = group.rank() == 1 ? std::numeric_limits<double>::infinity() : 1;
    ddp(row(value).to(device_of(group))).sum().backward();
    EXPECT_FALSE(net->weight.grad().defined());
    EXPECT_EQ(ddp.skipped(), 1U);
    ddp(row(1).to(device_of(group))).sum().backward();
    expect_gradient(net->weight, 1);
  });
}

class Watching final : public CommunicationHook {
 public:
  std::string name() const override { return "watching"; }
  Work begin(const GradientBucket& bucket) override {
    ++calls;
    const bool stays = stays_on_gpu(bucket.group, device_of(bucket.group));
    EXPECT_EQ(bucket.flat.device().is_cpu(), !stays);
    for (const auto& gradient : bucket.gradients) EXPECT_EQ(gradient.device(), bucket.flat.device());
    return bucket.average(bucket.flat);
  }
  int calls = 0;
};

TEST(OtherDevice, ShowsHooksMainMemoryUnlessGradientsStayThere) {
  on_device_ranks(2, [](const Group& group) {
    const auto hook = std::make_shared<Watching>();
    const auto halves = [](torch::ScalarType type) {
      return DataParallelOptions{.communication_hook = std::make_shared<HalfHook>(type)};
    };
    expect_close(trained(group, device_of(group), {.communication_hook = hook}), trained(group, cpu, {}));
    EXPECT_EQ(hook->calls, 4);
    const auto here = trained(group, cpu, halves(torch::kBFloat16));
    expect_close(trained(group, device_of(group), halves(torch::kBFloat16)), here);
  });
}

Tensors joined(const Group& group, torch::Device device) {
  const auto net = make_net(device);
  DistributedDataParallel ddp(net, group);
  auto optimizer = optimizer_of(net);
  ddp.join([&] {
    for (int step = 0; step < 3 - 2 * group.rank(); ++step) {
      optimizer.zero_grad();
      loss_of(ddp(input_of(group.rank(), step).to(device))).backward();
      optimizer.step();
    }
  });
  return on_cpu(net->parameters());
}

TEST(OtherDevice, JoinsRanksThatRunOutOfInputs) {
  on_device_ranks(
      2, [](const Group& group) { expect_close(joined(group, device_of(group)), joined(group, cpu)); });
}

/// Two branches, whose backwards libtorch runs at the same time.
struct Branches : torch::nn::Module {
  explicit Branches(torch::Device device) : other(device) {
    register_module("here", here);
    register_module("there", there);
    there->to(device);
  }
  torch::Tensor forward(const torch::Tensor& x) {
    return here->forward(x) + there->forward(x.to(other)).to(torch::kCPU);
  }
  Sequential here = make_net(torch::kCPU), there = make_net(torch::kCPU);
  torch::Device other;
};

TEST(OtherDevice, MayHoldPartOfTheModel) {
  on_device_ranks(2, [](const Group& group) {
    const auto mixed = std::make_shared<Branches>(device_of(group));
    const auto expected = std::make_shared<Branches>(cpu);
    DistributedDataParallel of_mixed(mixed, group, small_buckets),
        of_expected(expected, group, small_buckets);
    for (int step = 0; step < 20; ++step) {
      for (auto* const ddp : {&of_mixed, &of_expected}) {
        ddp->zero_grad();
        loss_of((*ddp)(input_of(group.rank(), step))).backward();
      }
      Tensors gradients, expected_gradients;
      for (const auto& parameter : mixed->parameters()) {
        EXPECT_EQ(parameter.grad().device(), parameter.device());
        gradients.push_back(parameter.grad());
      }
      for (const auto& parameter : expected->parameters()) expected_gradients.push_back(parameter.grad());
      expect_close(on_cpu(gradients), expected_gradients);
    }
  });
}

TEST(OtherDevice, IsFollowedWhenAModelMovesThere) {
  on_device_ranks(2, [](const Group& group) {
    auto net = ones(3, 2);
    DistributedDataParallel ddp(net, group);
    ddp(row(1)).sum().backward();
    net->to(device_of(group));
    net->zero_grad();
    ddp(row(group.rank() + 1).to(device_of(group))).sum().backward();
    expect_gradient(net->weight, average_of_inputs(group));
  });
}

TEST(OtherDevice, IsOfOneKindOnAllRanks) {
  const auto endings = run_device_ranks(2, [](const Group& group) {
    auto net = ones(3, 2);
    if (group.rank() == 0) net->to(device_of(group));
    const DistributedDataParallel ddp(net, group);
  });
  for (const auto& ending : endings) {
    EXPECT_EQ(ending.code, ErrorCode::mismatch);
    EXPECT_THAT(ending.text,
                HasSubstr("rank 1's parameter weight is f32 [2, 3], rank 0's is f32 [2, 3] on " +
                          c10::DeviceTypeName(other_device(0).type(), /*lower_case=*/true) + ";"));
  }
}

Tensors normalised(const Group& group, torch::Device device) {
  torch::nn::BatchNorm1d norm(3);
  norm->to(device);
  convert_sync_batch_norm(*norm, group);
  const auto input = input_of(group.rank(), 0).to(device).requires_grad_();
  const auto output = norm->forward(input);
  output.pow(3).sum().backward();
  return on_cpu(
      {output, input.grad(), norm->weight.grad(), norm->bias.grad(), norm->running_mean, norm->running_var});
}

TEST(OtherDevice, SynchronisesBatchNorms) {
  on_device_ranks(2, [](const Group& group) {
    expect_close(normalised(group, device_of(group)), normalised(group, cpu));
  });
}

TEST(OtherDevice, GoesOnFromACheckpoint) {
  std::string pattern = testing::TempDir() + "other_device.XXXXXX";
  const std::filesystem::path folder = ::mkdtemp(pattern.data());
  on_device_ranks(2, [&](const Group& group) {
    const auto step = [&](Sequential& net, torch::optim::Optimizer& optimizer) {
      optimizer.zero_grad();
      loss_of(net->forward(input_of(0, 0).to(device_of(group)))).backward();
      optimizer.step();
    };
    auto net = make_net(device_of(group)), other = make_net(device_of(group));
    auto optimizer = optimizer_of(net), other_optimizer = optimizer_of(other);
    step(net, optimizer);
    save_checkpoint(folder / "net", group, net, optimizer);
    load_checkpoint(folder / "net", group, other, other_optimizer);
    step(net, optimizer);
    step(other, other_optimizer);
    expect_close(on_cpu(other->parameters()), on_cpu(net->parameters()));
    barrier(group).wait();
  });
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace lockstep
