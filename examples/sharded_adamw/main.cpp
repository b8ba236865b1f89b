// An optimizer's state shared out among the ranks: AdamW keeps two numbers for each parameter. With
// DistributedDataParallel every rank keeps them all; with ShardedOptimizer each keeps those of its slice of
// the model, and updates that slice. What the model learns is the same.
//
//   lockstep run -np 2 build/release/bin/sharded_adamw
#include <lockstep/lockstep.h>
#include <lockstep/train.h>

#include <array>
#include <cstdio>
#include <numeric>
#include <string>
#include <vector>

#include "examples/support/run.h"
#include "examples/support/teacher.h"

namespace {

struct Options {
  int steps = 100;
  std::int64_t batch_size = 32;
  double learning_rate = 1e-3;
  double noise = 0.1;
  std::uint64_t random_seed = 0;
  std::string device = "cpu";
};

struct Trained {
  double loss = 0;                        // of samples that no rank has seen
  std::vector<std::uint64_t> state = {};  // bytes, of each rank
};

torch::nn::Sequential make_net() {
  return torch::nn::Sequential(torch::nn::Linear(64, 256), torch::nn::Tanh(), torch::nn::Linear(256, 256),
                               torch::nn::Tanh(), torch::nn::Linear(256, 8));
}

/// `forward`: the model, or what is wrapped around it.
template <class Forward, class Optimizer>
double train(const lockstep::Group& world, const Options& options, Forward& forward, Optimizer& optimizer) {
  torch::manual_seed(options.random_seed + 1);
  const examples::Teacher teacher(64, 8, options.noise);
  const auto device = lockstep::device_for(world, options.device);
  const auto unseen = teacher.draw(1000).to(device);
  torch::manual_seed(options.random_seed + 2 +
                     static_cast<std::uint64_t>(world.rank()));  // a rank's own samples
  for (int step = 0; step < options.steps; ++step) {
    const auto batch = teacher.draw(options.batch_size).to(device);
    optimizer.zero_grad();
    torch::mse_loss(forward(batch.x), batch.y).backward();
    optimizer.step();
  }
  const torch::NoGradGuard no_grad;
  return torch::mse_loss(forward(unseen.x), unseen.y).template item<double>();
}

std::vector<std::uint64_t> of_all_ranks(const lockstep::Group& world, std::uint64_t mine) {
  std::vector<std::uint64_t> all(static_cast<std::size_t>(world.size()));
  lockstep::all_gather(world, std::array{mine}, all).wait();
  return all;
}

Trained train_replicated(const lockstep::Group& world, const Options& options) {
  auto net = make_net();
  net->to(lockstep::device_for(world, options.device));
  lockstep::DistributedDataParallel ddp(net, world, {.non_finite = lockstep::NonFinite::stop});
  torch::optim::AdamW adamw(ddp.parameters(), torch::optim::AdamWOptions(options.learning_rate));
  const double loss = train(world, options, ddp, adamw);
  std::uint64_t bytes = 0;
  for (const auto& [parameter, state] : adamw.state()) {
    const auto& kept = static_cast<const torch::optim::AdamWParamState&>(*state);
    bytes += kept.exp_avg().nbytes() + kept.exp_avg_sq().nbytes();
  }
  return {loss, of_all_ranks(world, bytes)};
}

Trained train_sharded(const lockstep::Group& world, const Options& options) {
  auto net = make_net();
  net->to(lockstep::device_for(world, options.device));
  lockstep::ShardedOptimizer<torch::optim::AdamW> adamw(*net, world,
                                                        torch::optim::AdamWOptions(options.learning_rate),
                                                        {.non_finite = lockstep::NonFinite::stop});
  const auto forward = [&](const torch::Tensor& x) { return net->forward(x); };  // nothing is wrapped
  const double loss = train(world, options, forward, adamw);
  std::uint64_t bytes = 0;
  for (const auto& slice : adamw.slice_states()) {
    for (const auto& array : slice.arrays) bytes += array.defined() ? array.nbytes() : 0;
  }
  return {loss, of_all_ranks(world, bytes)};
}

void print(const char* name, const Trained& trained) {
  std::printf("%-23s  loss %.4f  state on each rank:", name, trained.loss);
  for (const auto bytes : trained.state) std::printf(" %llu", static_cast<unsigned long long>(bytes));
  const auto sum = std::accumulate(trained.state.begin(), trained.state.end(), std::uint64_t{0});
  std::printf(" bytes, together %llu\n", static_cast<unsigned long long>(sum));
}

void compare(const Options& options) {
  const auto world = lockstep::init();
  torch::manual_seed(options.random_seed);
  const auto replicated = train_replicated(world, options);
  torch::manual_seed(options.random_seed);
  const auto sharded = train_sharded(world, options);
  if (world.rank() != 0) return;
  print("DistributedDataParallel", replicated);
  print("ShardedOptimizer", sharded);
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app(
      "Trains twice with AdamW, its state on every rank and shared out, and compares loss and memory.");
  app.add_option("--steps", options.steps, "Steps of the optimizer")
      ->check(examples::count_from(1))
      ->capture_default_str();
  app.add_option("--batch_size", options.batch_size, "Samples per process and step")
      ->check(examples::count_from(1))
      ->capture_default_str();
  app.add_option("--learning_rate", options.learning_rate, "Of AdamW")->capture_default_str();
  app.add_option("--noise", options.noise, "Of the samples")
      ->check(examples::from_zero())
      ->capture_default_str();
  app.add_option("--random_seed", options.random_seed, "For task, weights and samples")
      ->check(examples::count_from(0))
      ->capture_default_str();
  examples::add_device_flag(app, options.device);
  return examples::run(app, argc, argv, [&] { compare(options); });
}
