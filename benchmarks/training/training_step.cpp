// The time of training steps on each rank, in one of the ways to train; benchmarks/training/run starts it
// under `lockstep run`.
#include <sys/resource.h>
#include <torch/torch.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/lockstep.h"
#include "lockstep/train.h"
#include "training/models.h"

namespace {

struct Options {
  std::string model = "mlp";
  std::string mode = "ddp";
  std::string optimizer = "sgd";
  std::string device = "cpu";
  int steps = 40;
  int warm_up = 10;
};

using Optimizer = std::unique_ptr<torch::optim::Optimizer>;

torch::optim::SGDOptions sgd_options() { return torch::optim::SGDOptions(0.001).momentum(0.9); }
torch::optim::AdamWOptions adamw_options() { return torch::optim::AdamWOptions(0.0001); }

template <template <class> class Form>
Optimizer make(const Options& options, const torch::nn::Sequential& net) {
  if (options.optimizer == "adamw")
    return std::make_unique<Form<torch::optim::AdamW>>(net->parameters(), adamw_options());
  return std::make_unique<Form<torch::optim::SGD>>(net->parameters(), sgd_options());
}

template <class Plain>
using Itself = Plain;

Optimizer make_sharded(const Options& options, const torch::nn::Sequential& net,
                       const lockstep::Group& world) {
  using lockstep::ShardedOptimizer;
  if (options.optimizer == "adamw")
    return std::make_unique<ShardedOptimizer<torch::optim::AdamW>>(*net, world, adamw_options());
  return std::make_unique<ShardedOptimizer<torch::optim::SGD>>(*net, world, sgd_options());
}

long faults() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return usage.ru_minflt;
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// Of the group's record, microseconds of the last steps that nothing covered; 0 of programs that are not
/// connected.
double exposed_us(const lockstep::Group& world, std::size_t steps) {
  const auto events = world.recorder().steps_since(0);
  std::vector<double> exposed = {0};
  for (std::size_t i = events.size() - std::min(events.size(), steps); i < events.size(); ++i)
    exposed.push_back(static_cast<double>(events[i].exposed_wait_ns + events[i].exposed_work_ns) / 1000);
  return median(std::move(exposed));
}

/// Every gradient under a name of its own, as Horovod has them; each is submitted when backward is over.
void average_by_name(const lockstep::NamedCollectives& named, const std::vector<torch::Tensor>& parameters) {
  std::vector<lockstep::Work> works;
  for (const auto& parameter : parameters) {
    const auto gradient = parameter.grad();
    const auto name = "gradient " + std::to_string(works.size());
    works.push_back(named.all_reduce(
        name, std::span(gradient.data_ptr<float>(), static_cast<std::size_t>(gradient.numel())),
        lockstep::ReduceOp::average));
  }
  lockstep::Work::all(std::move(works)).wait();
}

/// What it takes, in microseconds, to agree on as many names: their tensors have one element.
double control_us(const lockstep::NamedCollectives& named, std::size_t names) {
  std::vector<float> values(names, 1.0F);
  std::vector<double> times;
  for (int round = -10; round < 100; ++round) {
    named.barrier("round").wait();
    const auto begin = std::chrono::steady_clock::now();
    std::vector<lockstep::Work> works;
    for (std::size_t i = 0; i < names; ++i)
      works.push_back(named.all_reduce("value " + std::to_string(i), std::span(values).subspan(i, 1)));
    lockstep::Work::all(std::move(works)).wait();
    const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - begin;
    if (round >= 0) times.push_back(took.count());
  }
  return median(std::move(times));
}

void run(const Options& options) {
  torch::set_num_threads(1);
  torch::manual_seed(1);
  const auto world = lockstep::init();
  std::optional<lockstep::SharedHeap> heap;
  if (options.mode == "unconnected_tuned" || options.mode == "sharded") heap.emplace(world);
  bench::Task task = bench::task_named(options.model);
  const auto device = lockstep::device_for(world, options.device);
  task.net->to(device);
  task.input = task.input.to(device);
  task.target = task.target.to(device);
  std::optional<lockstep::DistributedDataParallel<torch::nn::SequentialImpl>> ddp;
  std::optional<lockstep::DistributedOptimizer> distributed;
  std::optional<lockstep::NamedCollectives> named;
  Optimizer optimizer;
  if (options.mode == "ddp") ddp.emplace(task.net, world);
  if (options.mode == "sharded") {
    optimizer = make_sharded(options, task.net, world);
  } else if (options.mode == "unconnected_tuned") {
    optimizer = make<lockstep::FusedOptimizer>(options, task.net);
  } else {
    optimizer = make<Itself>(options, task.net);
  }
  if (options.mode == "distributed_optimizer") distributed.emplace(*optimizer, *task.net, world);
  if (options.mode == "named") named.emplace(world);
  const auto parameters = task.net->parameters();
  std::vector<double> seconds;
  long faults_before = 0;
  for (int step = -options.warm_up; step < options.steps; ++step) {
    if (step == 0) faults_before = faults();
    const auto begin = std::chrono::steady_clock::now();
    optimizer->zero_grad();
    const auto output = ddp ? (*ddp)(task.input) : task.net->forward(task.input);
    torch::nn::functional::cross_entropy(output, task.target).backward();
    if (named) average_by_name(*named, parameters);
    if (distributed) {
      distributed->step();
    } else {
      optimizer->step();
    }
    if (device.is_cuda()) torch::cuda::synchronize();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    if (step >= 0) seconds.push_back(took.count());
  }
  const double images = static_cast<double>(task.input.size(0)) * world.size();
  const double faults_per_step = static_cast<double>(faults() - faults_before) / options.steps;
  const double step_s = lockstep::metric_average(world, median(seconds), 1);
  const double all_faults = lockstep::metric_average(world, faults_per_step, 1);
  const double exposed = exposed_us(world, seconds.size());
  const double control_share = named ? control_us(*named, parameters.size()) * 1e-6 / step_s : 0;
  if (world.rank() == 0)
    std::printf(
        "{\"images_per_s\": %.1f, \"exposed_us\": %.1f, \"faults_per_step\": %.1f, \"control_share\": "
        "%.5f}\n",
        images / step_s, exposed, all_faults, control_share);
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("Measures training steps.");
  app.add_option("--model", options.model)->check(CLI::IsMember({"convnet", "mlp", "wide_mlp", "resnet18"}));
  app.add_option("--mode", options.mode)
      ->check(CLI::IsMember(
          {"unconnected", "unconnected_tuned", "ddp", "sharded", "distributed_optimizer", "named"}));
  app.add_option("--optimizer", options.optimizer)->check(CLI::IsMember({"sgd", "adamw"}));
  app.add_option("--device", options.device);
  app.add_option("--steps", options.steps);
  app.add_option("--warm-up", options.warm_up);
  CLI11_PARSE(app, argc, argv);
  try {
    run(options);
  } catch (const std::exception& error) {
    (void)std::fprintf(stderr, "training_step: %s\n", error.what());
    return 1;
  }
  return 0;
}
