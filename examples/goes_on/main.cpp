// A training that goes on when ranks die: after each change of who lives it calls init() again, and newcomers get rank 0's state.
//
//   lockstep run -np 3 --restart all build/release/bin/goes_on --kill 1
#include <lockstep/lockstep.h>
#include <lockstep/train.h>
#include <signal.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>

#include "examples/support/run.h"

namespace {

struct Options {
  int steps = 300;
  int batch = 96;    // of all ranks together
  int pause_ms = 0;  // after each step: a rank that was killed needs time to come back
  int kill = -1;     // the rank that kills itself in the middle, to see what happens
  std::string device = "cpu";
};

struct Training {
  torch::nn::Linear net{8, 1};
  torch::optim::SGD sgd{net->parameters(), torch::optim::SGDOptions(0.05).momentum(0.9)};
  int step = 0;
};

/// What is to be learned: y = 1 x1 + 2 x2 + ... + 8 x8.
torch::Tensor answer(const torch::Tensor& x) { return x.matmul(torch::arange(1.0, 9.0)).unsqueeze(1); }

/// All ranks start from what the first one has, which has been there the longest.
void begin_equal(const lockstep::Group& world, Training& training) {
  lockstep::broadcast_optimizer_state(world, training.sgd);
  std::array<int, 1> step{training.step};
  lockstep::broadcast(world, step, 0).wait();
  training.step = step[0];
}

/// Whether ranks have come or gone, as all of this world agree.
bool has_changed(const lockstep::Group& world) {
  std::array<int, 1> changed{lockstep::world_has_changed() ? 1 : 0};
  lockstep::all_reduce(world, changed, lockstep::ReduceOp::max).wait();
  return changed[0] != 0;
}

/// Until all steps are done (true), or who lives has changed.
bool train(const lockstep::Group& world, Training& training, const Options& options) {
  lockstep::DistributedDataParallel ddp(training.net, world);  // rank 0's parameters everywhere
  begin_equal(world, training);
  std::printf("rank %d of %d goes on at step %d\n", world.rank(), world.size(), training.step);
  (void)std::fflush(stdout);  // it may die any time
  while (training.step < options.steps) {
    if (training.step == options.steps / 2 && lockstep::incarnation() == 0 &&
        world.world_rank(world.rank()) == options.kill)
      (void)raise(SIGKILL);
    training.sgd.zero_grad();
    torch::manual_seed(training.step);  // a batch of all, of which each rank takes its part
    const auto x = torch::randn({options.batch, 8}).tensor_split(world.size())[world.rank()];
    const auto device = training.net->weight.device();
    torch::mse_loss(ddp(x.to(device)), answer(x).to(device)).backward();
    training.sgd.step();
    ++training.step;
    std::this_thread::sleep_for(std::chrono::milliseconds(options.pause_ms));
    if (has_changed(world)) return false;
  }
  return true;
}

void run(const Options& options) {
  Training training;
  bool is_placed = false;
  for (bool done = false; !done;) {
    const auto world = lockstep::init();  // of all that live
    if (!is_placed) training.net->to(lockstep::device_for(world, options.device));
    is_placed = true;  // and stays there, whoever else comes or goes
    try {
      done = train(world, training, options);
    } catch (const lockstep::Error& error) {
      std::printf("lost at step %d: %s\n", training.step, error.what());
    }
  }
  const auto x = torch::randn({100, 8});
  const torch::NoGradGuard no_grad;
  std::printf(
      "done after %d steps, error %.4f\n", training.step,
      torch::mse_loss(training.net(x.to(training.net->weight.device())).cpu(), answer(x)).item<double>());
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app(
      "Trains on the ranks that live; start it with lockstep run --restart all, --tolerate all or --min-np "
      "N.");
  app.add_option("--steps", options.steps, "Steps of the optimizer")
      ->check(examples::count_from(1))
      ->capture_default_str();
  app.add_option("--batch", options.batch, "Samples a step, of all ranks together")
      ->check(examples::count_from(64))
      ->capture_default_str();
  app.add_option("--pause_ms", options.pause_ms, "After each step, so that there is time to kill a rank")
      ->check(examples::count_from(0))
      ->capture_default_str();
  examples::add_device_flag(app, options.device);
  app.add_option("--kill", options.kill, "The rank that kills itself half-way, in its first life");
  return examples::run(app, argc, argv, [&] { run(options); });
}
