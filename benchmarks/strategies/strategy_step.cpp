// What a step takes in each way to spread a training, on all ranks at once. Prints a line of JSON for each row:
//
//   strategy_step --mode pipeline --steps 5
//   {"case": "pipeline", "seconds": 0.412}
//
// Modes: single, accumulating, naive, pipeline, simulated (ResNet-18; simulated: what the simulator says of pipeline, by stages that
// are timed here); tensor_parallel, serial (blocks of an MLP); mirrored, central, processes
// (an MLP; processes: one for each part of the batch); parameter_server (pull and push alone); elastic, diloco (an MLP); vote (of Elastic, alone).
#include <lockstep/lockstep.h>
#include <lockstep/train.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <iostream>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "examples/support/resnet.h"
#include "lockstep/base/median.h"
#include "lockstep/pipeline/schedules.h"
#include "lockstep/pipeline/simulate.h"

namespace {

using lockstep::Group;
using lockstep::base::median;
using torch::Tensor;

struct Options {
  std::string mode = "pipeline";
  int steps = 5, warm_up = 1;
  std::int64_t batch = 0;  // 0: the mode's
  int micro_batches = 8;
  std::int64_t width = 1024;  // of tensor parallelism's blocks; 4 times as wide inside
  int every = 10;             // diloco's steps between two averages
  std::vector<std::size_t> cut = {};
  bool tells_cut = false;
};

void say(const std::string& name, double seconds) {
  std::printf("{\"case\": \"%s\", \"seconds\": %.9f}\n", name.c_str(), seconds);
}

double seconds_of(const std::function<void()>& once) {
  const auto begin = std::chrono::steady_clock::now();
  once();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

/// The median of the steps of `once`.
double median_of(const Options& options, const std::function<void()>& once) {
  for (int step = 0; step < options.warm_up; ++step) once();
  std::vector<double> seconds;
  for (int step = 0; step < options.steps; ++step) seconds.push_back(seconds_of(once));
  return median(std::move(seconds));
}

/// The layers of peer_strategy.py's ResNet-18.
lockstep::Layers resnet18() {
  using examples::BasicBlock, examples::BasicBlockImpl;
  lockstep::Layers layers;
  layers.add([] { return BasicBlockImpl::convolution(3, 64, 7, 2); })
      .add<torch::nn::BatchNorm2d>(64)
      .add([](const Tensor& x) { return torch::max_pool2d(torch::relu(x), 3, 2, 1); });
  std::int64_t in = 64;
  for (std::int64_t out = 64; out <= 512; out *= 2) {
    layers.add<BasicBlock>(in, out, out == 64 ? 1 : 2).add<BasicBlock>(out, out, 1);
    in = out;
  }
  layers.add([](const Tensor& x) { return torch::adaptive_avg_pool2d(x, {1, 1}).flatten(1); });
  layers.add<torch::nn::Linear>(512, 10);
  return layers;
}

std::int64_t images_of(const Options& options) { return options.batch != 0 ? options.batch : 64; }

/// What Elastic adds to a step before it is taken: 1,000 votes after each other, so that ranks arrive together.
void vote(const Group& world, const Options& options) {
  constexpr int votes = 1000;
  const double seconds = median_of(options, [&] {
    for (int i = 0; i < votes; ++i) {
      std::array<std::uint64_t, 1> changed{lockstep::world_has_changed() ? std::uint64_t{1} : 0};
      lockstep::all_reduce(world, changed, lockstep::ReduceOp::max).wait();
    }
  });
  if (world.rank() == 0) say(options.mode, seconds / votes);
}

/// What a pipeline's step and its optimizer's take by the simulator: each rank times its stage for a while, as the others do theirs.
void simulated(const Group& world, const Options& options) {
  using lockstep::pipeline::StageTimes;
  constexpr auto timed = std::chrono::seconds(3);
  const auto heap = lockstep::SharedHeap::unless_there_is_one(world);  // as the pipeline has it
  const auto rank = static_cast<std::size_t>(world.rank());
  const bool is_first = world.rank() == 0, is_last = world.rank() + 1 == world.size();
  const auto first = std::accumulate(options.cut.begin(), options.cut.begin() + world.rank(), std::size_t{0});
  const auto layers = resnet18();
  std::vector<lockstep::BuiltLayer> stage;
  std::vector<Tensor> parameters;
  const std::int64_t samples = images_of(options) / options.micro_batches;
  const Tensor labels = torch::randint(10, {samples}, torch::kInt64);
  std::vector<Tensor> input = {torch::randn({samples, 3, 64, 64})};
  for (std::size_t i = 0; i < first + options.cut[rank]; ++i) {
    auto layer = layers.layers()[i].build();
    if (i < first) {
      const torch::NoGradGuard no_grad;
      input = layer.forward(input);
      continue;
    }
    if (layer.module) {
      for (const Tensor& parameter : layer.module->parameters()) parameters.push_back(parameter);
    }
    stage.push_back(std::move(layer));
  }
  std::vector<double> forwards, backwards, steps;
  torch::optim::SGD sgd(parameters, 0.01);
  lockstep::barrier(world).wait();
  for (const auto begin = std::chrono::steady_clock::now();
       std::chrono::steady_clock::now() - begin < timed;) {
    std::vector<Tensor> x = {input[0].detach().set_requires_grad(!is_first)};
    forwards.push_back(seconds_of([&] {
      for (const auto& layer : stage) x = layer.forward(x);
      if (is_last) x = {torch::nn::functional::cross_entropy(x[0], labels)};
    }));
    const Tensor gradient = torch::ones_like(x[0]);
    backwards.push_back(seconds_of([&] { x[0].backward(gradient); }));
    if (forwards.size() % static_cast<std::size_t>(options.micro_batches) != 0) continue;
    steps.push_back(seconds_of([&] { sgd.step(); }));
    sgd.zero_grad();
  }
  // What a stage takes in, there and back.
  double message = 0;
  for (int later = 1; later < world.size(); ++later) {
    const bool is_sender = world.rank() + 1 == later;
    if (world.rank() == later || is_sender) {
      std::int64_t bytes = is_sender ? 0 : input[0].numel() * input[0].element_size();
      if (is_sender) {
        lockstep::recv(world, std::span(&bytes, 1), later).wait();
      } else {
        lockstep::send(world, std::span(&bytes, 1), later - 1).wait();
      }
      std::vector<std::byte> memory(static_cast<std::size_t>(bytes));
      const double both_ways = median_of(options, [&] {
        if (is_sender) lockstep::send(world, std::span(memory), later).wait();
        lockstep::recv(world, std::span(memory), is_sender ? later : later - 1).wait();
        if (!is_sender) lockstep::send(world, std::span(memory), later - 1).wait();
      });
      if (!is_sender) message = both_ways / 2;
    }
    lockstep::barrier(world).wait();
  }
  const std::array<double, 4> mine = {median(forwards), median(backwards), message, median(steps)};
  std::vector<double> of_all(mine.size() * static_cast<std::size_t>(world.size()));
  lockstep::all_gather(world, std::span<const double>(mine), std::span(of_all)).wait();
  std::vector<StageTimes> times(static_cast<std::size_t>(world.size()));
  double slowest_step = 0;
  for (std::size_t i = 0; i < times.size(); ++i) {
    const auto of_rank = std::span(of_all).subspan(i * mine.size(), mine.size());
    times[i].forward = of_rank[0];
    times[i].backward = of_rank[1];
    times[i].send_backward = of_rank[2];
    if (i > 0) times[i - 1].send_forward = of_rank[2];
    slowest_step = std::max(slowest_step, of_rank[3]);
  }
  const auto plan = lockstep::pipeline::plan_of(
      lockstep::pipeline::schedule_named("1f1b"),
      {.ranks = world.size(), .stages = world.size(), .micro_batches = options.micro_batches});
  if (is_first) say(options.mode, lockstep::pipeline::simulate(plan, times).seconds + slowest_step);
}

void pipeline(const Group& world, const Options& options) {
  const std::int64_t batch = images_of(options);
  const bool is_alone = options.mode == "single" || options.mode == "accumulating";
  const Group group = is_alone ? *world.split(world.rank()) : world;
  const bool is_whole = options.mode == "single" || options.mode == "naive";
  lockstep::PipelineOptions made{.schedule = options.mode == "pipeline" ? "1f1b" : "naive",
                                 .micro_batches = is_whole ? 1 : options.micro_batches,
                                 .cut = is_alone ? std::vector<std::size_t>() : options.cut};
  const Tensor images = torch::randn({batch, 3, 64, 64});
  const Tensor labels = torch::randint(10, {batch}, torch::kInt64);
  if (options.tells_cut)
    made.sample = images.narrow(0, 0, std::max<std::int64_t>(1, batch / options.micro_batches));
  lockstep::Pipeline pipe(resnet18(), group, made);
  if (options.tells_cut) {
    if (world.rank() == 0) std::printf("{\"cut\": [%zu, %zu]}\n", pipe.cut()[0], pipe.cut()[1]);
    return;
  }
  torch::optim::SGD sgd(pipe.parameters(), 0.01);
  const auto step = [&] {
    sgd.zero_grad();
    (void)pipe.step(images, labels, [](const Tensor& output, const Tensor& target) {
      return torch::nn::functional::cross_entropy(output, target);
    });
    sgd.step();
  };
  // One process has a core to itself, and the other core nothing to do, as where it is used.
  if (!is_alone || world.rank() == 0) {
    const double seconds = median_of(options, step);
    if (world.rank() == 0) say(options.mode, seconds);
  }
  lockstep::barrier(world).wait();
}

struct SerialBlocksImpl : torch::nn::Module {
  explicit SerialBlocksImpl(std::int64_t width) {
    for (int i = 0; i < 4; ++i) {
      layers->push_back(torch::nn::Linear(width, 4 * width));
      layers->push_back(torch::nn::GELU());
      layers->push_back(torch::nn::Linear(4 * width, width));
    }
    register_module("layers", layers);
  }
  Tensor forward(const Tensor& x) { return layers->forward(x); }
  torch::nn::Sequential layers;
};
struct ParallelBlocksImpl : torch::nn::Module {
  ParallelBlocksImpl(std::int64_t width, const Group& group) {
    for (int i = 0; i < 4; ++i) {
      up.push_back(
          register_module("up" + std::to_string(i), lockstep::ColumnParallelLinear(width, 4 * width, group)));
      down.push_back(
          register_module("down" + std::to_string(i), lockstep::RowParallelLinear(4 * width, width, group)));
    }
  }
  Tensor forward(Tensor x) {
    for (std::size_t i = 0; i < up.size(); ++i) x = down[i](torch::gelu(up[i](x)));
    return x;
  }
  std::vector<lockstep::ColumnParallelLinear> up;
  std::vector<lockstep::RowParallelLinear> down;
};

template <class Net>
double train_median(const Options& options, Net& net, const Tensor& x) {
  torch::optim::SGD sgd(net.parameters(), 0.01);
  return median_of(options, [&] {
    sgd.zero_grad();
    net.forward(x).pow(2).mean().backward();
    sgd.step();
  });
}

void tensor_parallel(const Group& world, const Options& options) {
  const lockstep::SharedHeap heap(world);
  const Tensor x = torch::randn({options.batch != 0 ? options.batch : 256, options.width});
  double seconds = 0;
  if (options.mode == "tensor_parallel") {
    ParallelBlocksImpl net(options.width, world);
    seconds = train_median(options, net, x);
  } else if (world.rank() == 0) {
    SerialBlocksImpl net(options.width);
    seconds = train_median(options, net, x);
  }
  if (world.rank() == 0) say(options.mode, seconds);
  lockstep::barrier(world).wait();
}

torch::nn::Sequential mlp() {
  return torch::nn::Sequential(torch::nn::Linear(784, 1024), torch::nn::ReLU(), torch::nn::Linear(1024, 1024),
                               torch::nn::ReLU(), torch::nn::Linear(1024, 10));
}

/// A batch of 512 on two slots of one process.
void devices(const Group& world, const Options& options) {
  const lockstep::SharedHeap heap(world);
  const std::int64_t batch = options.batch != 0 ? options.batch : 512;
  const Tensor x = torch::randn({batch, 784}), y = torch::randint(10, {batch}, torch::kInt64);
  lockstep::DataParallel net(mlp, lockstep::devices("cpu:2"),
                             {.variables = options.mode == "central" ? lockstep::Variables::central
                                                                     : lockstep::Variables::mirrored});
  lockstep::FusedSGD sgd(net.parameters(), torch::optim::SGDOptions(0.01));
  say(options.mode, median_of(options, [&] {
        sgd.zero_grad();
        torch::nn::functional::cross_entropy(net(x), y).backward();
        sgd.step();
      }));
}

/// The same batch, a part of it on each rank.
void processes(const Group& world, const Options& options) {
  const std::int64_t batch = (options.batch != 0 ? options.batch : 512) / world.size();
  const Tensor x = torch::randn({batch, 784}), y = torch::randint(10, {batch}, torch::kInt64);
  auto net = mlp();
  lockstep::FusedSGD sgd(net->parameters(), torch::optim::SGDOptions(0.01));
  const auto loss_of = [&](const Tensor& output) { return torch::nn::functional::cross_entropy(output, y); };
  double seconds = 0;
  if (options.mode == "elastic") {
    lockstep::Elastic job(net, sgd, {.parts = world.size()});
    seconds = median_of(options, [&] {
      (void)job.step([&](const lockstep::ElasticPart&) {
        auto loss = loss_of(net->forward(x));
        loss.backward();
        return loss;
      });
    });
  } else if (options.mode == "diloco") {
    lockstep::DiLoCo outer(net, world, torch::optim::SGDOptions(0.7).momentum(0.9).nesterov(true),
                           {.every = options.every});
    const auto once = [&] {
      for (bool is_common = false; !is_common; is_common = outer.step()) {
        sgd.zero_grad();
        loss_of(net->forward(x)).backward();
        sgd.step();
      }
    };
    seconds = median_of(options, once) / options.every;
  } else {
    lockstep::DistributedDataParallel ddp(net, world);
    seconds = median_of(options, [&] {
      sgd.zero_grad();
      loss_of(ddp(x)).backward();
      sgd.step();
    });
  }
  if (world.rank() == 0) say(options.mode, seconds);
}

/// 40 MB of variables: the time of a pull, and of a push with its update.
void parameter_server(const Options& options) {
  struct NetImpl : torch::nn::Module {
    NetImpl() {
      for (int i = 0; i < 10; ++i)
        values.push_back(register_parameter("value" + std::to_string(i), torch::zeros({1000, 1000})));
    }
    std::vector<Tensor> values;
  };
  NetImpl net;
  lockstep::ParameterServer server(net, torch::optim::SGDOptions(0.01), {.staleness = std::nullopt});
  if (server.is_server()) return server.serve();
  std::vector<Tensor> gradients;
  for (std::size_t i = 0; i < net.values.size(); ++i) gradients.push_back(torch::ones({1000, 1000}));
  say(options.mode, median_of(options, [&] {
        server.pull();
        for (std::size_t i = 0; i < net.values.size(); ++i) net.values[i].mutable_grad() = gradients[i];
        server.push();
      }));
  server.leave();
}

void run(const Options& options) {
  torch::set_num_threads(1);
  torch::manual_seed(1);
  if (options.mode == "parameter_server") return parameter_server(options);
  const Group world = lockstep::init();
  if (options.mode == "tensor_parallel" || options.mode == "serial") return tensor_parallel(world, options);
  if (options.mode == "mirrored" || options.mode == "central") return devices(world, options);
  if (options.mode == "processes" || options.mode == "elastic" || options.mode == "diloco")
    return processes(world, options);
  if (options.mode == "vote") return vote(world, options);
  if (options.mode == "simulated") return simulated(world, options);
  pipeline(world, options);
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("Measures steps of one strategy");
  app.add_option("--mode", options.mode)
      ->check(CLI::IsMember({"single", "accumulating", "naive", "pipeline", "simulated", "tensor_parallel",
                             "serial", "mirrored", "central", "processes", "elastic", "vote", "diloco",
                             "parameter_server"}));
  app.add_option("--steps", options.steps)->check(CLI::Range(1, 100000));
  app.add_option("--warm-up", options.warm_up)->check(CLI::Range(0, 100000));
  app.add_option("--batch", options.batch);
  app.add_option("--width", options.width);
  app.add_option("--micro-batches", options.micro_batches);
  app.add_option("--every", options.every)->check(CLI::Range(1, 100000));
  app.add_option("--cut", options.cut)->delimiter(',');
  app.add_flag("--tell-cut", options.tells_cut);
  CLI11_PARSE(app, argc, argv);
  try {
    run(options);
    return 0;
  } catch (const std::exception& error) {
    std::cerr << "strategy_step: " << error.what() << "\n";
    return 1;
  }
}
