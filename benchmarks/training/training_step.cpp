// The time of a training step on each rank, for one way of averaging gradients, one of driving the works that
// do it, and one of waiting. benchmarks/training/run starts it under `lockstep run`.
#include <torch/torch.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "lockstep/group/impl.h"
#include "lockstep/lockstep.h"
#include "lockstep/train.h"

namespace {

struct Options {
  std::string model = "mlp";
  std::string gradients = "copied";
  std::string progress = "inline";
  std::string wait = "spin";
  int steps = 60;
  int warm_up = 10;
};

struct Task {
  torch::nn::Sequential net;
  torch::Tensor input;
  torch::Tensor target;
};

/// 40 MB of gradients; most of the time is in them.
Task mlp() {
  using torch::nn::Linear;
  torch::nn::Sequential net(Linear(1024, 2048), torch::nn::ReLU(), Linear(2048, 2048), torch::nn::ReLU(),
                            Linear(2048, 1720), torch::nn::ReLU(), Linear(1720, 10));
  return {net, torch::randn({64, 1024}), torch::randint(10, {64})};
}

/// Little to average, much to compute.
Task convnet() {
  using torch::nn::Conv2d;
  using torch::nn::Conv2dOptions;
  torch::nn::Sequential net(Conv2d(Conv2dOptions(3, 32, 3).padding(1)), torch::nn::ReLU(),
                            torch::nn::MaxPool2d(2), Conv2d(Conv2dOptions(32, 64, 3).padding(1)),
                            torch::nn::ReLU(), torch::nn::MaxPool2d(2), torch::nn::Flatten(),
                            torch::nn::Linear(64 * 8 * 8, 128), torch::nn::ReLU(),
                            torch::nn::Linear(128, 10));
  return {net, torch::randn({32, 3, 32, 32}), torch::randint(10, {32})};
}

/// What follows backward where nothing overlaps: all gradients into one arena buffer, averaged, and back.
class AverageAfterwards {
 public:
  AverageAfterwards(std::vector<torch::Tensor> parameters, const lockstep::Group& world)
      : parameters_(std::move(parameters)), world_(world) {
    std::size_t elements = 0;
    for (const auto& p : parameters_) elements += static_cast<std::size_t>(p.numel());
    all_ = world.allocate<float>(elements);
  }
  void operator()() {
    const auto span = std::span<float>(all_.data(), all_.size());
    std::size_t at = 0;
    for (const auto& p : parameters_) {
      const auto n = static_cast<std::size_t>(p.numel());
      std::memcpy(&span[at], p.grad().data_ptr<float>(), n * sizeof(float));
      at += n;
    }
    lockstep::all_reduce(world_, span, lockstep::ReduceOp::average).wait();
    at = 0;
    for (const auto& p : parameters_) {
      const auto n = static_cast<std::size_t>(p.numel());
      std::memcpy(p.grad().data_ptr<float>(), &span[at], n * sizeof(float));
      at += n;
    }
  }

 private:
  std::vector<torch::Tensor> parameters_;
  lockstep::Group world_;
  lockstep::ArenaBuffer<float> all_;
};

void drive_as_told(const lockstep::Group& world, const Options& options) {
  if (world.size() == 1) return;
  auto& progress = *world.impl().context->progress;
  lockstep::WaitPolicy policy;
  if (options.wait != "spin") policy.spins = 0;
  if (options.wait == "futex") policy.yields = 0;
  progress.set_policy(policy);
  if (options.progress == "thread") progress.start_thread();
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

void run(const Options& options) {
  torch::set_num_threads(1);
  torch::manual_seed(1);
  const auto world = lockstep::init();
  drive_as_told(world, options);
  Task task = options.model == "mlp" ? mlp() : convnet();
  torch::optim::SGD sgd(task.net->parameters(), 0.001);

  std::function<torch::Tensor()> forward = [&] { return task.net->forward(task.input); };
  std::function<void()> after = [] {};
  if (options.gradients == "afterwards") {
    const auto average = std::make_shared<AverageAfterwards>(task.net->parameters(), world);
    after = [average] { (*average)(); };
  }
  std::optional<lockstep::DistributedDataParallel<torch::nn::SequentialImpl>> ddp;
  if (options.gradients == "copied" || options.gradients == "accumulated") {
    ddp.emplace(task.net, world);
    forward = [&] { return (*ddp)(task.input); };
  }

  std::vector<double> milliseconds;
  for (int step = -options.warm_up; step < options.steps; ++step) {
    const auto begin = std::chrono::steady_clock::now();
    sgd.zero_grad(/*set_to_none=*/options.gradients != "accumulated");
    torch::nn::functional::cross_entropy(forward(), task.target).backward();
    after();
    sgd.step();
    if (step >= 0)
      milliseconds.push_back(
          std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count());
  }
  const double mine = median(milliseconds);
  const double all = lockstep::metric_average(world, mine, 1);
  if (world.rank() == 0) std::printf("{\"step_ms\": %.4f}\n", all);
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("Measures a training step.");
  app.add_option("--model", options.model)->check(CLI::IsMember({"mlp", "convnet"}));
  app.add_option(
         "--gradients", options.gradients,
         "none: not averaged; copied, accumulated: DistributedDataParallel after zero_grad(true, false); "
         "afterwards: all at once when backward is over")
      ->check(CLI::IsMember({"none", "copied", "accumulated", "afterwards"}));
  app.add_option("--progress", options.progress)->check(CLI::IsMember({"inline", "thread"}));
  app.add_option("--wait", options.wait)->check(CLI::IsMember({"spin", "yield", "futex"}));
  app.add_option("--steps", options.steps)->check(CLI::PositiveNumber);
  CLI11_PARSE(app, argc, argv);
  try {
    run(options);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "training_step: %s\n", error.what());
    return 1;
  }
}
