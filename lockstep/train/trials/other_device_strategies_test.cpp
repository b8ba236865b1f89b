// What is spread over ranks in other ways than by averaged gradients is on another device than the CPU what it is on it.
#include <ATen/autocast_mode.h>
#include <gmock/gmock.h>

#include <array>
#include <filesystem>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/base/folder_test.h"
#include "lockstep/train/data_parallel/data_parallel_test.h"
#include "lockstep/train/data_parallel/hooks/gradient_noise.h"
#include "lockstep/train/data_parallel/hooks/power_sgd.h"
#include "lockstep/train/data_parallel/hooks/stale_average.h"
#include "lockstep/train/elastic/part_gradients.h"
#include "lockstep/train/horovod/named_tensors.h"
#include "lockstep/train/pipeline/pipeline.h"
#include "lockstep/train/replicas/diloco.h"
#include "lockstep/train/replicas/mixed_precision.h"
#include "lockstep/train/replicas/model_average.h"
#include "lockstep/train/replicas/model_tensors.h"
#include "lockstep/train/tensor/device_ranks_test.h"
#include "lockstep/train/tensor/fake_device_test.h"
#include "lockstep/train/tensor_parallel/parallel_layers.h"

namespace lockstep {
namespace {

using namespace test;
using torch::Tensor;
using torch::nn::Linear;

Tensors named_results(const Group& group, torch::Device device) {
  const NamedCollectives named(group);
  const int rank = group.rank();
  const Tensor mine = (torch::arange(6.0).view({3, 2}) + 10 * rank).to(device);
  Tensors all = {all_reduce(named, mine.t(), "new").wait(), mine};  // with gaps, and as it was
  const Tensor in_place = mine.clone(), first = mine.clone(), second = mine.flatten().clone();
  all.push_back(all_reduce_(named, in_place, "in place", ReduceOp::sum).wait());
  all_reduce_grouped_(named, {first, second}, "grouped", ReduceOp::max).wait();
  all.insert(all.end(), {in_place, first, second});
  all.push_back(broadcast(named, mine, 1, "broadcast").wait());
  all.push_back(broadcast_(named, mine.clone(), 1, "broadcast in place").wait());
  all.push_back(all_gather(named, mine.narrow(0, 0, rank + 1), "gather").wait());
  all.push_back(all_to_all(named, mine, "exchange", {1 + rank, 2 - rank}).wait());
  all.push_back(reduce_scatter(named, mine, "share").wait());
  for (const Tensor& tensor : all) EXPECT_EQ(tensor.device(), device);
  return on_cpu(all);
}

TEST(OtherDevice, TakesPartInNamedCollectives) {
  on_device_ranks(2, [](const Group& group) {
    const Tensors expected = named_results(group, torch::kCPU);
    expect_close(named_results(group, device_of(group)), expected);
    const torch::Device one_has = group.rank() == 0 ? torch::Device(torch::kCPU) : device_of(group);
    expect_close(named_results(group, one_has), expected);
  });
}

Tensor squares(const Tensor& output, const Tensor& target) { return torch::mse_loss(output, target); }

/// With a tie from one rank to the other, one within the last rank, and a skip.
Layers tied_layers() {
  Layers layers;
  layers.add<Linear>(4, 4).add([](const Tensor& x) { return std::tuple(x, torch::tanh(x)); });
  layers.add([](const Tensor& x, const Tensor& skipped) { return x + skipped; });
  layers.add<Linear>(4, 4).add(torch::tanh).add<Linear>(4, 4).add<Linear>(4, 4);
  return layers.tie("0.weight", "3.weight").tie("5.bias", "6.bias");
}

Tensor batch_of(int step, torch::Device device) {
  return (torch::arange(28).view({7, 4}) * 0.02 + 0.1 * step).to(device);
}

void train(Pipeline& pipe, torch::optim::Optimizer& optimizer, torch::Device device, Tensors& seen) {
  for (int step = 0; step < 3; ++step) {
    pipe.zero_grad(/*set_to_none=*/step % 2 == 0);
    seen.push_back(torch::tensor(pipe.step(batch_of(step, device), batch_of(step + 5, device), squares)));
    seen.push_back(torch::tensor(pipe.clip_grad_norm(0.5)));
    optimizer.step();
  }
}

/// What the ranks see of it, the whole model on rank 0 in the end; goes on from a checkpoint half way.
Tensors piped(const Group& group, const std::vector<torch::Device>& devices, const std::string& schedule,
              const StateDict& begins, const std::filesystem::path& checkpoint) {
  const torch::Device device = devices[static_cast<std::size_t>(group.rank())];
  const PipelineOptions options{.schedule = schedule,
                                .micro_batches = 3,
                                .stages_per_rank = schedule == "interleaved" ? 2 : 1,
                                .sample = batch_of(0, torch::kCPU),
                                .non_finite = NonFinite::stop,
                                .device = device};
  const auto adam = [](const Pipeline& pipe) { return torch::optim::Adam(pipe.parameters(), 0.01); };
  Tensors seen;
  {
    Pipeline pipe(tied_layers(), group, options);
    pipe.scatter_state(begins);
    auto optimizer = adam(pipe);
    train(pipe, optimizer, torch::kCPU, seen);  // a batch is moved
    save_checkpoint(checkpoint, pipe, optimizer);
  }
  Pipeline pipe(tied_layers(), group, options);
  auto optimizer = adam(pipe);
  load_checkpoint(checkpoint, pipe, optimizer);
  train(pipe, optimizer, device, seen);
  for (const Tensor& parameter : pipe.parameters()) EXPECT_EQ(parameter.device(), device);
  const Tensor output = pipe.evaluate(batch_of(9, torch::kCPU));
  if (output.defined()) {
    EXPECT_EQ(output.device(), device);
    seen.push_back(output);
  }
  for (const auto& item : pipe.gather_state()) seen.push_back(item.value());
  return on_cpu(seen);
}

struct OtherDeviceFiles : test::FolderTest {};

TEST_F(OtherDeviceFiles, PipelinesLieOnOtherDevices) {
  for (const std::string schedule : {"1f1b", "interleaved"}) {
    on_device_ranks(2, [&](const Group& group) {
      const StateDict begins = Pipeline(tied_layers(), group).gather_state();
      const torch::Device cpu = torch::kCPU;
      const auto trained_on = [&](const std::vector<torch::Device>& devices, const char* name) {
        return piped(group, devices, schedule, begins, folder_ / (schedule + name));
      };
      const Tensors expected = trained_on({cpu, cpu}, "cpu");
      expect_close(trained_on({other_device(0), other_device(1)}, "both"), expected);
      expect_close(trained_on({cpu, other_device(1)}, "second"), expected);
    });
  }
}

TEST(OtherDevice, AveragesThePipelinesOfReplicas) {
  on_device_ranks(2, [](const Group& group) {
    Layers layers;
    layers.add<Linear>(4, 4).add(torch::tanh).add<Linear>(4, 4);
    const Group alone = *group.split(group.rank());
    const auto gradients = [&](torch::Device device) {
      Pipeline pipe(layers, alone, {.micro_batches = 2, .replicas = group, .device = device});
      const torch::NoGradGuard no_grad;
      for (const Tensor& parameter : pipe.parameters()) parameter.fill_(0.1);
      {
        const torch::AutoGradMode grad(true);
        pipe.step(batch_of(group.rank(), device), batch_of(3, device), squares);
      }
      Tensors found;
      for (const Tensor& parameter : pipe.parameters()) found.push_back(parameter.grad());
      return on_cpu(found);
    };
    expect_close(gradients(device_of(group)), gradients(torch::kCPU));
  });
}

TEST(OtherDevice, IsOfOneKindInAllReplicasOfAPipeline) {
  const auto endings = run_device_ranks(4, [](const Group& group) {
    Layers layers;
    layers.add<Linear>(4, 4).add<Linear>(4, 4);
    const Group stages = *group.split(group.rank() / 2), replicas = *group.split(group.rank() % 2);
    const Pipeline pipe(
        layers, stages,
        {.replicas = replicas, .device = group.rank() == 2 ? torch::Device(torch::kCPU) : device_of(group)});
  });
  for (const Ending& ending : endings) {
    EXPECT_EQ(ending.code, ErrorCode::mismatch) << ending.text;
    EXPECT_THAT(ending.text, testing::HasSubstr("kind of device"));
  }
}

TEST(OtherDevice, IsNotForWhatAStageMakesInMainMemory) {
  on_device_ranks(2, [](const Group& group) {
    Layers layers;
    layers.add([](const Tensor& x) { return std::tuple(x * 2, torch::tensor({2, 1})); });
    layers.add([](const Tensor& x, const Tensor& lengths) {
      EXPECT_FALSE(x.is_cpu());
      EXPECT_TRUE(lengths.is_cpu());
      return x.narrow(0, 0, lengths[0].item<std::int64_t>());
    });
    Pipeline pipe(layers, group, {.device = device_of(group)});
    const Tensor output = pipe.evaluate(torch::ones({3, 4}));
    if (group.rank() == 1) {
      EXPECT_TRUE(torch::equal(output.cpu(), torch::full({2, 4}, 2.0F)));
    }
  });
}

struct PerceptronImpl : torch::nn::Module {
  explicit PerceptronImpl(const Group& group)
      : words(register_module("words", VocabParallelEmbedding(5, 4, group))),
        up(register_module("up", ColumnParallelLinear(4, 6, group))),
        down(register_module("down", RowParallelLinear(6, 4, group))) {}
  Tensor forward(const Tensor& indices) { return down(torch::tanh(up(words(indices)))); }
  VocabParallelEmbedding words;
  ColumnParallelLinear up;
  RowParallelLinear down;
};
TORCH_MODULE(Perceptron);

TEST_F(OtherDeviceFiles, LayersAreTensorParallelOnOtherDevices) {
  on_device_ranks(2, [&](const Group& group) {
    std::array<Tensors, 2> of_both;
    for (const bool is_other : {false, true}) {
      Perceptron model(group);
      const torch::Device device = is_other ? device_of(group) : torch::Device(torch::kCPU);
      model->to(device);
      const auto file = folder_ / "perceptron.pth";
      if (is_other) {
        load_whole_state_dict(file, group, *model);
      } else {
        save_whole_state_dict(file, group, *model);
      }
      const Tensor indices = torch::tensor({{0, 4, 2}, {1, 1, 3}}).to(device);
      squares(model(indices), torch::ones({2, 3, 4}, device)).backward();
      Tensors seen = {torch::tensor(clip_grad_norm(group, *model, 0.01))};
      for (const Tensor& parameter : model->parameters()) {
        EXPECT_EQ(parameter.grad().device(), device);
        seen.push_back(parameter.grad());
      }
      of_both[is_other ? 1 : 0] = on_cpu(seen);
    }
    expect_close(of_both[1], of_both[0]);
  });
}

TEST(OtherDevice, MovesACommonModel) {
  on_device_ranks(2, [](const Group& group) {
    const auto trained = [&](torch::Device device) {
      auto net = ones(4, 4);
      net->to(device);
      DiLoCo outer(net, group, torch::optim::SGDOptions(0.7).momentum(0.9).nesterov(true), {.every = 2});
      torch::optim::SGD optimizer(net->parameters(), 0.01);
      for (int step = 0; step < 4; ++step) {
        optimizer.zero_grad();
        squares(net(batch_of(step + group.rank(), device)), batch_of(9, device)).backward();
        optimizer.step();
        outer.step();
      }
      return on_cpu(net->parameters());
    };
    expect_close(trained(device_of(group)), trained(torch::kCPU));
  });
}

TEST(OtherDevice, AddsUpTheGradientsOfElasticsParts) {
  on_device_ranks(2, [](const Group& group) {
    const auto averages = [&](torch::Device device) {
      auto net = ones(4, 4);
      net->to(device);
      PartGradients gradients(distinct_parameters(tensors_of(*net), true), 3, /*looks=*/true);
      const auto share = gradients.begin(group);
      for (int part = share.first; part < share.last; ++part) {
        const auto loss = squares(net(batch_of(part, device)), batch_of(9, device));
        loss.backward();
        gradients.add(loss.item<double>());
      }
      gradients.finish();
      EXPECT_FALSE(gradients.non_finite().has_value());
      Tensors found = {torch::tensor(gradients.take())};
      for (const Tensor& parameter : net->parameters()) {
        EXPECT_EQ(parameter.grad().device(), device);
        found.push_back(parameter.grad());
      }
      return on_cpu(found);
    };
    expect_close(averages(device_of(group)), averages(torch::kCPU));
  });
}

TEST(OtherDevice, AveragesByEveryHook) {
  using Make = std::function<std::shared_ptr<CommunicationHook>()>;
  const std::vector<Make> hooks = {
      [] { return std::make_shared<HalfHook>(torch::kHalf); },
      [] { return std::make_shared<HalfHook>(torch::kBFloat16); },
      [] {
        return std::make_shared<PowerSgdHook>(PowerSgdOptions{.start_after = 1, .least_compression = 1});
      },
      [] { return std::make_shared<StaleAverageHook>(); },
      [] { return std::make_shared<NoiseScaleHook>(7); },
  };
  for (const Make& make : hooks) {
    on_device_ranks(2, [&](const Group& group) {
      const auto trained = [&](torch::Device device) {
        auto net = ones(4, 4);
        net->to(device);
        DataParallelOptions options;
        options.communication_hook = make();
        DistributedDataParallel ddp(net, group, options);
        torch::optim::SGD optimizer(net->parameters(), 0.01);
        MovingAverage average(*net, 0.5);
        for (int step = 0; step < 4; ++step) {
          optimizer.zero_grad();
          squares(ddp(batch_of(step + group.rank(), device)), batch_of(9, device)).backward();
          optimizer.step();
          average.update();
        }
        Tensors found = on_cpu(net->parameters());
        const auto swapped = average.swap_in();
        net->weight.detach().add_(group.rank());
        average_models(group, *net);
        for (const Tensor& parameter : on_cpu(net->parameters())) found.push_back(parameter);
        return found;
      };
      expect_close(trained(device_of(group)), trained(torch::kCPU));
    });
  }
}

TEST(OtherDevice, ScalesGradientsWhereverTheyAre) {
  const torch::Device device = other_device(0);
  auto here = ones(3, 2), there = ones(3, 2);
  there->to(device);
  auto parameters = here->parameters();
  for (const Tensor& parameter : there->parameters()) parameters.push_back(parameter);
  torch::optim::SGD optimizer(parameters, 0.5);
  GradientScaler scaler;
  const auto step = [&](double value) {
    optimizer.zero_grad();
    scaler.scale(here(row(1)).sum()).backward();
    scaler.scale(there(row(value).to(device)).sum()).backward();
    const bool is_taken = scaler.step(optimizer);
    scaler.update();
    return is_taken;
  };
  EXPECT_TRUE(step(1));
  for (const auto& net : {here, there}) EXPECT_FLOAT_EQ(net->weight[0][0].item<float>(), 0.5);
  EXPECT_FALSE(step(std::numeric_limits<double>::infinity()));
  for (const auto& net : {here, there}) EXPECT_FLOAT_EQ(net->weight[0][0].item<float>(), 0.5);
}

TEST(OtherDevice, ComputesInHalvesWhereThatIsAskedFor) {
  const torch::Device device = other_device(0);
  {
    const Autocast halves(torch::kBFloat16, true, device.type());
    EXPECT_TRUE(at::autocast::is_autocast_enabled(device.type()));
    EXPECT_FALSE(at::autocast::is_autocast_enabled(torch::kCPU));
    if (device.is_cuda()) {
      EXPECT_EQ(torch::linear(torch::ones({2, 2}, device), torch::ones({2, 2}, device)).scalar_type(),
                torch::kBFloat16);
    }
  }
  EXPECT_FALSE(at::autocast::is_autocast_enabled(device.type()));
}

}  // namespace
}  // namespace lockstep
